"""A stream that keeps up is written where its events are committed; one that does not gets them from its task."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from itertools import pairwise, product

import pytest

from hub.core.tasks.stream import TaskStream
from hub.inbound.a2a.sse_response import EventStream
from hub.ports.state.engine import Engine
from hub.storage.common.log_tail import LIVE_EVENTS
from rolecall.errors import AnswerNotSent, ClientDisconnected, InvalidAnswer, TaskNotFound, TokenEnded
from rolecall.model.a2a import Logged, TaskState
from rolecall.model.ids import TaskId
from rolecall.protocol.callers.encoder import EventEncoder, SseEncoder
from rolecall.protocol.sse import COME_BACK, KEEP_ALIVE
from tests.contract.words import DONE, admitted, append, status, text
from tests.unit.inbound import streams
from tests.unit.inbound.streams import TOKEN, Connection, StreamRequest, memory_engine, stream_of

pytestmark = pytest.mark.virtual_time


def an_encoder() -> SseEncoder:
    return SseEncoder(EventEncoder("0.3"))


class FailingEncoder:
    """Fails for the events with this body."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self._inner = an_encoder()

    def frames(self, batch: Sequence[Logged]) -> bytes:
        if any(logged.event.body == b"bad" for logged in batch):
            raise self._error
        return self._inner.frames(batch)


class Live:
    """A stream whose client keeps up: it has nothing to read."""

    def __init__(
        self, engine: Engine, task: TaskId, connection: Connection, task_stream: TaskStream, stream_request: StreamRequest
    ) -> None:
        self.engine, self.task, self.connection, self.task_stream, self.stream_request = (
            engine,
            task,
            connection,
            task_stream,
            stream_request,
        )
        self.copy: asyncio.Task[None]

    async def append(self, *events: str) -> None:
        after = len(await self.engine.events.read(self.task))
        await append(self.engine, self.task, *(text(event) for event in events), after=after)


async def live_stream(encoder: object = None, *, refused: Sequence[int] = ()) -> Live:
    engine, connection = memory_engine(), Connection(refused)
    task = await admitted(engine)
    live = Live(engine, task, connection, stream_of(engine, task), StreamRequest(connection))
    event_stream = await live.stream_request.opened(live.task_stream)
    live.copy = asyncio.create_task(event_stream.copy(live.task_stream, encoder or an_encoder()))  # type: ignore[arg-type]
    await asyncio.sleep(0.01)
    return live


def count_of(kind: type) -> int:
    """How many objects of that type are in memory."""
    gc.collect()
    return sum(type(found) is kind for found in gc.get_objects())


async def test_an_event_is_written_in_the_turn_of_its_commit() -> None:
    live = await live_stream()
    for count in (1, 2, 3):
        await live.append(str(count))
        assert live.connection.cursors == list(range(1, count + 1))
    live.copy.cancel()


async def test_a_stream_that_waits_is_one_task() -> None:
    before = asyncio.all_tasks()
    live = await live_stream()
    assert asyncio.all_tasks() - before == {live.copy}
    await live.append("1")
    assert asyncio.all_tasks() - before == {live.copy}
    live.copy.cancel()


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_whatever_the_client_refuses_it_gets_every_event_once_in_order(turns: int) -> None:
    for refusal in product((False, True), repeat=7):
        refused = [number for number, is_refused in enumerate(refusal, 1) if is_refused]
        live = await live_stream(refused=refused)
        for count in (1, 1, 2, 1, LIVE_EVENTS + 5, 1):
            await live.append(*["chunk"] * count)
            for _ in range(turns):
                await asyncio.sleep(0)
        await append(live.engine, live.task, DONE, after=LIVE_EVENTS + 11)
        await asyncio.wait_for(live.copy, 1)
        assert live.connection.cursors == list(range(1, LIVE_EVENTS + 13)), refused
        assert live.connection.written.endswith(b"\r\n0\r\n\r\n")


async def test_events_that_wait_behind_a_refused_one_are_written_by_the_task() -> None:
    live = await live_stream(refused=[1, 2])
    await live.append("1")
    await live.append("2")
    assert live.connection.cursors == []
    await asyncio.sleep(0.01)
    assert live.connection.cursors == [1, 2]
    await live.append("3")
    assert live.connection.cursors == [1, 2, 3]
    live.copy.cancel()


async def test_a_live_stream_ends_after_the_last_event() -> None:
    live = await live_stream()
    await live.append("1")
    await append(live.engine, live.task, DONE, after=1)
    live.task_stream.break_off()
    await asyncio.wait_for(live.copy, 1)
    assert live.connection.cursors == [1, 2]
    assert COME_BACK not in live.connection.written
    assert live.connection.written.endswith(b"\r\n0\r\n\r\n")
    assert live.task_stream.closed
    assert not live.task_stream.broken_off


async def test_a_live_stream_ends_at_a_pause_and_is_not_broken_off_after_it() -> None:
    live = await live_stream()
    await append(live.engine, live.task, status(TaskState.INPUT_REQUIRED))
    live.task_stream.break_off()
    await asyncio.wait_for(live.copy, 1)
    assert live.connection.cursors == [1]
    assert COME_BACK not in live.connection.written
    assert live.connection.written.endswith(b"\r\n0\r\n\r\n")


async def test_a_pause_with_something_behind_it_does_not_end_a_live_stream() -> None:
    live = await live_stream()
    await append(live.engine, live.task, status(TaskState.INPUT_REQUIRED), status(TaskState.WORKING))
    await append(live.engine, live.task, DONE, after=2)
    await asyncio.wait_for(live.copy, 1)
    assert live.connection.cursors == [1, 2, 3]


async def test_a_live_stream_is_broken_off_with_the_advice_to_come_back() -> None:
    live = await live_stream()
    await live.append("1")
    live.task_stream.break_off()
    await live.append("2")
    await asyncio.wait_for(live.copy, 1)
    assert live.connection.cursors == [1]
    assert COME_BACK in live.connection.written


async def test_a_live_stream_without_events_gets_keep_alives_also_as_its_first_bytes() -> None:
    live = await live_stream()
    await asyncio.sleep(2 * streams.KEEP_ALIVE)
    assert live.connection.written.startswith(b"HTTP/1.1 200 OK")
    assert live.connection.written.count(KEEP_ALIVE) == 2
    await asyncio.sleep(streams.KEEP_ALIVE - 1)
    await live.append("1")
    await asyncio.sleep(streams.KEEP_ALIVE - 1)
    assert live.connection.written.count(KEEP_ALIVE) == 2
    await asyncio.sleep(2)
    assert live.connection.written.count(KEEP_ALIVE) == 3
    assert live.connection.cursors == [1]
    live.copy.cancel()


async def test_an_event_that_cannot_be_encoded_comes_after_the_earlier_ones_as_an_error() -> None:
    live = await live_stream(FailingEncoder(InvalidAnswer("The worker", "said it badly")))
    await live.append("1", "bad", "3")
    with pytest.raises(InvalidAnswer):
        await asyncio.wait_for(live.copy, 1)
    assert live.connection.cursors == [1]


async def test_a_bug_in_one_reader_fails_that_reader_only() -> None:
    live = await live_stream(FailingEncoder(RuntimeError("a bug")))
    other = stream_of(live.engine, live.task)
    stream_request = StreamRequest(Connection())
    copy = asyncio.create_task((await stream_request.opened(other)).copy(other, an_encoder()))
    await asyncio.sleep(0.01)
    await live.append("bad")
    await append(live.engine, live.task, DONE, after=1)
    with pytest.raises(RuntimeError, match="a bug"):
        await asyncio.wait_for(live.copy, 1)
    await asyncio.wait_for(copy, 1)
    assert live.task_stream.closed


class WatchedMemory(Connection):
    """Knows how much memory its stream's workspace held at each write."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[int] = []
        self.stream_request: StreamRequest

    def write(self, data: bytes) -> None:
        super().write(data)
        self.held.append(self.stream_request.unsent.use.used)


async def large_event(stream_request: StreamRequest) -> asyncio.Task[None]:
    engine = memory_engine()
    task = await admitted(engine)
    task_stream = stream_of(engine, task)
    event_stream = await stream_request.opened(task_stream)
    copy = asyncio.create_task(event_stream.copy(task_stream, an_encoder()))
    await asyncio.sleep(0.01)
    await append(engine, task, text("x" * 200_000))
    await append(engine, task, DONE, after=1)
    return copy


async def test_a_large_event_counts_for_its_workspace_until_the_client_has_taken_it() -> None:
    connection = WatchedMemory()
    connection.stream_request = StreamRequest(connection)
    copy = await large_event(connection.stream_request)
    while len(connection.written) < 200_000:  # noqa: ASYNC110  what counts is the next turn
        await asyncio.sleep(0)
    assert connection.stream_request.unsent.use.used > 200_000
    await asyncio.wait_for(copy, 1)
    assert connection.cursors == [1, 2]
    assert all(200_000 < held < 200_200 for held in connection.held[:4]) and connection.held[-1] == 0


async def test_a_large_event_that_its_workspace_may_not_hold_ends_the_stream_with_the_reason() -> None:
    stream_request = StreamRequest(connection := Connection())
    stream_request.unsent.fill("default", 10**9)
    with pytest.raises(AnswerNotSent):
        await asyncio.wait_for(await large_event(stream_request), 1)
    assert connection.written == b""


async def test_a_client_that_disconnects_closes_its_stream() -> None:
    live = await live_stream()
    live.stream_request.cycle.disconnect()
    assert live.task_stream.closed
    with pytest.raises(ClientDisconnected):
        await asyncio.wait_for(live.copy, 1)


async def test_a_client_that_disconnects_as_its_stream_opens_is_sent_nothing() -> None:
    engine, connection = memory_engine(), Connection()
    task = await admitted(engine)
    await append(engine, task, text())
    task_stream, stream_request = stream_of(engine, task), StreamRequest(connection)
    event_stream = await stream_request.opened(task_stream)
    stream_request.cycle.disconnect()
    with pytest.raises(ClientDisconnected):
        await asyncio.wait_for(event_stream.copy(task_stream, an_encoder()), 1)
    assert task_stream.closed
    assert connection.written == b""


async def test_a_refused_keep_alive_is_left_out() -> None:
    live = await live_stream(refused=[1])
    await asyncio.sleep(2.5 * streams.KEEP_ALIVE)
    assert live.connection.written.count(KEEP_ALIVE) == 1
    live.copy.cancel()


async def test_a_withdrawn_task_ends_a_stream_without_events_as_unknown() -> None:
    live = await live_stream()
    await live.engine.tasks.discard(live.task)
    with pytest.raises(TaskNotFound):
        await asyncio.wait_for(live.copy, 1)
    assert live.connection.written == b""


async def test_a_stream_that_has_ended_is_not_kept_by_its_connection() -> None:
    before = count_of(EventStream), count_of(TaskStream)
    live = await live_stream()
    await append(live.engine, live.task, DONE)
    await asyncio.wait_for(live.copy, 1)
    stream_request = live.stream_request
    stream_request.request.close()
    del live
    assert (count_of(EventStream), count_of(TaskStream)) == before
    assert not stream_request.cycle.disconnected


async def test_many_readers_of_one_task_are_served_in_turns() -> None:
    engine, connections, copies = memory_engine(), list[Connection](), list[asyncio.Task[None]]()
    task = await admitted(engine)
    for _ in range(60):
        connections.append(Connection())
        task_stream = stream_of(engine, task)
        event_stream = await StreamRequest(connections[-1]).opened(task_stream)
        copies.append(asyncio.create_task(event_stream.copy(task_stream, an_encoder())))
    await asyncio.sleep(0.01)
    served = [0]

    async def count_each_turn() -> None:
        while served[-1] < len(connections):
            served.append(sum(bool(connection.cursors) for connection in connections))
            await asyncio.sleep(0)

    counter = asyncio.create_task(count_each_turn())
    await append(engine, task, text("1"))
    await append(engine, task, text("2"), after=1)
    await asyncio.wait_for(counter, 1)
    assert max(later - before for before, later in pairwise(served)) <= 10
    await append(engine, task, DONE, after=2)
    await asyncio.wait_for(asyncio.gather(*copies), 1)
    assert [connection.cursors for connection in connections] == [[1, 2, 3]] * len(connections)


# --- a token that ends


async def test_a_stream_ends_with_its_token_and_its_client_may_be_told() -> None:
    live = await live_stream()
    await live.append("1")
    live.stream_request.uses.end(TOKEN)
    assert live.task_stream.closed
    with pytest.raises(TokenEnded):
        await asyncio.wait_for(live.copy, 1)
    await live.append("2")
    assert live.connection.cursors == [1]
    live.stream_request.request.close()
    assert live.stream_request.uses.tokens == []


async def test_a_stream_that_has_not_begun_ends_with_its_token() -> None:
    stream_request = StreamRequest(Connection())
    opening: asyncio.Task[TaskStream] = asyncio.create_task(asyncio.sleep(60))  # type: ignore[arg-type]
    waiting = asyncio.create_task(
        EventStream(stream_request.request, streams.KEEP_ALIVE, stream_request.unsent).wait_for(opening)
    )
    await asyncio.sleep(0.01)
    stream_request.uses.end(TOKEN)
    with pytest.raises(TokenEnded):
        await asyncio.wait_for(waiting, 0.1)
    opening.cancel()


class Full(Connection):
    """Its client takes no data, and never will."""

    write_paused = True  # type: ignore[assignment]

    def on_drain(self, callback: object) -> None: ...


@pytest.mark.parametrize("size", [1, 200_000])
async def test_a_stream_whose_client_takes_no_data_ends_with_its_token_and_holds_nothing(size: int) -> None:
    engine, stream_request = memory_engine(), StreamRequest(Full())
    task = await admitted(engine)
    task_stream = stream_of(engine, task)
    copy = asyncio.create_task((await stream_request.opened(task_stream)).copy(task_stream, an_encoder()))
    await append(engine, task, text("x" * size))
    await asyncio.sleep(20)
    assert not copy.done()
    stream_request.uses.end(TOKEN)
    with pytest.raises(ClientDisconnected):
        await asyncio.wait_for(copy, 0.1)
    assert stream_request.unsent.use.used == 0


async def test_a_stream_whose_token_ends_while_a_large_event_is_written_does_not_wait_for_its_client() -> None:
    class Slow(Connection):
        def on_drain(self, callback: object) -> None: ...

    class Ending:
        def frames(self, batch: Sequence[Logged]) -> bytes:
            stream_request.uses.end(TOKEN)
            return b"x" * 200_000

    engine, stream_request = memory_engine(), StreamRequest(Slow())
    task = await admitted(engine)
    await append(engine, task, text())
    task_stream = stream_of(engine, task)
    event_stream = await stream_request.opened(task_stream)
    with pytest.raises(TokenEnded):
        await asyncio.wait_for(event_stream.copy(task_stream, Ending()), 0.1)


async def test_a_stream_that_has_ended_is_no_longer_found_by_its_token() -> None:
    live = await live_stream()
    assert live.stream_request.uses.tokens == [TOKEN]
    await append(live.engine, live.task, DONE)
    await asyncio.wait_for(live.copy, 1)
    live.stream_request.request.close()
    assert live.stream_request.uses.tokens == []
