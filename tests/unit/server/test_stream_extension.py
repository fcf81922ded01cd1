"""Writing an answer without a task: the extension of the hub's own server, and the same through `send`."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from hub.server.asgi import Message, SendStream, drained
from tests.helpers.processes import wait_for
from tests.unit.server.served import LOOP_BY_NAME, PATIENCE, RawClient, RunningServer, running_server
from tests.unit.server.test_connection import get

PIECE = b"2000\r\n" + b"x" * 8192 + b"\r\n"


@pytest.fixture(params=LOOP_BY_NAME)
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with running_server(request.param) as server:
        yield server


@pytest.fixture
def client(server: RunningServer) -> Iterator[RawClient]:
    with server.client() as client:
        yield client


def test_head_and_pieces_arrive_in_order_and_the_connection_goes_on(server: RunningServer, client: RawClient) -> None:
    for _ in range(2):
        head = client.send(get("pieces/3")).receive(b"\r\n\r\n")
        assert b"200 OK" in head
        assert client.receive(b"\r\n0\r\n\r\n") == 3 * PIECE + b"0\r\n\r\n"
    assert server.app.refused == 0


def test_a_slow_client_gets_all_and_holds_little_in_memory(server: RunningServer) -> None:
    server.limit_socket_buffer()
    with server.client() as client:
        client.send(get("pieces/50")).receive(b"\r\n\r\n")
        wait_for(lambda: server.app.refused >= 1)  # only then it reads on, so that it is slower than any server
        largest, size = 0, len(client.received)
        while size < 50 * len(PIECE):
            size += len(client.connection.recv(4096))
            largest = max(largest, server.unsent())
    assert largest < 100_000


def test_a_client_that_takes_nothing_is_cut_and_the_writer_learns_of_it(server: RunningServer, client: RawClient) -> None:
    client.send(get("pieces/1000000")).receive(b"x" * 8000)
    wait_for(lambda: server.app.disconnected == ["/pieces/1000000"] and not len(server.http_server), 10 * PATIENCE)
    assert server.app.refused >= 1
    assert server.app.written < 20_000_000


def test_what_is_written_after_the_end_is_in_no_later_answer(server: RunningServer, client: RawClient) -> None:
    client.send(get("pieces/1")).receive(b"0\r\n\r\n")
    client.send(get("wait"))
    wait_for(lambda: server.app.asked[-1:] == ["/wait"])
    stream = server.app.late_stream
    assert stream is not None
    written = asyncio.run_coroutine_threadsafe(_try(stream.try_write), server.loop).result(5)
    assert written
    server.release()
    answer = client.receive(b"GET /wait 0")
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"late" not in answer


async def _try(write: object) -> bool:
    assert callable(write)
    return bool(write(b"late"))


# --- through `send`


class SlowServer:
    """Takes a message when the test lets it."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.ready = asyncio.Semaphore(0)
        self.error: Exception | None = None
        self.disconnected = asyncio.Event()
        self.readers = 0

    async def receive(self) -> Message:
        assert self.readers == 0, "only one reader at a time"
        self.readers += 1
        try:
            await self.disconnected.wait()
        finally:
            self.readers -= 1
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        await self.ready.acquire()
        if self.error is not None:
            raise self.error
        self.taken.append(message)


async def test_through_send_one_piece_is_under_way_at_a_time() -> None:
    server = SlowServer()
    stream = SendStream(server.receive, server.send)
    await asyncio.wait_for(drained(stream), 1)
    assert stream.try_write(b"one")
    assert not stream.try_write(b"two")
    waiting = asyncio.create_task(drained(stream))
    await asyncio.sleep(0)
    assert not waiting.done()
    server.ready.release()
    await asyncio.wait_for(waiting, 1)
    assert stream.try_write(b"two")
    ending = asyncio.create_task(stream.end())
    server.ready.release()
    server.ready.release()
    await asyncio.wait_for(ending, 1)
    assert [(message["body"], message["more_body"]) for message in server.taken] == [
        (b"one", True),
        (b"two", True),
        (b"", False),
    ]
    await asyncio.wait_for(drained(stream), 1)


async def test_what_send_raises_reaches_the_next_write() -> None:
    server = SlowServer()
    server.error = TimeoutError()
    stream = SendStream(server.receive, server.send)
    assert stream.try_write(b"one")
    server.ready.release()
    await asyncio.wait_for(drained(stream), 1)
    with pytest.raises(TimeoutError):
        stream.try_write(b"two")


async def test_what_send_raises_last_is_not_reported_as_lost() -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    server = SlowServer()
    server.error = TimeoutError()
    server.ready.release()
    stream = SendStream(server.receive, server.send)
    stream.try_write(b"one")
    await asyncio.wait_for(drained(stream), 1)
    del stream
    gc.collect()
    assert reported == []


async def test_through_send_the_head_goes_before_the_first_piece_or_the_end() -> None:
    head = {"type": "http.response.start", "status": 200, "headers": []}
    for pieces in ([], [b"one"]):
        server = SlowServer()
        for _ in range(3):
            server.ready.release()
        stream = SendStream(server.receive, server.send)
        stream.begin(head)
        for piece in pieces:
            assert stream.try_write(piece)
        await asyncio.wait_for(stream.end(), 1)
        assert server.taken[0] == head
        assert [message["body"] for message in server.taken[1:]] == [*pieces, b""]


async def test_through_receive_every_callback_learns_of_the_disconnect_once() -> None:
    server, called = SlowServer(), list[str]()
    stream = SendStream(server.receive, server.send)
    stream.on_disconnect(lambda: called.append("first"))
    stream.on_disconnect(lambda: called.append("second"))
    await asyncio.sleep(0)
    assert called == []
    server.disconnected.set()
    await asyncio.sleep(0.01)
    assert called == ["first", "second"]
    stream.on_disconnect(lambda: called.append("late"))
    assert called == ["first", "second", "late"]


async def test_after_the_callbacks_are_forgotten_another_reader_may_receive() -> None:
    server, called = SlowServer(), list[str]()
    stream = SendStream(server.receive, server.send)
    stream.on_disconnect(lambda: called.append("forgotten"))
    await asyncio.sleep(0)
    assert server.readers == 1
    await stream.forget_callbacks()
    assert server.readers == 0
    server.disconnected.set()
    await asyncio.sleep(0.01)
    assert called == []
