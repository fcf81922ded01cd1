"""How a connection to the hub's own server ends: by its client, by an error, by a timeout, by the server's shutdown."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest

from hub.server.connection import ServerConnection
from tests.helpers.processes import wait_for
from tests.unit.server.served import LOOP_BY_NAME, PATIENCE, RawClient, RunningServer, running_server
from tests.unit.server.test_connection import CHUNKS, POST, get


@pytest.fixture(params=LOOP_BY_NAME)
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    with running_server(request.param, head_timeout=0.3, idle_timeout=0.6) as server:
        yield server


@pytest.fixture
def client(server: RunningServer) -> Iterator[RawClient]:
    with server.client() as client:
        yield client


# --- clients that half-close or disconnect


@pytest.mark.parametrize("path", ["echo", "wait"])
def test_a_half_closed_client_is_answered(server: RunningServer, client: RawClient, path: str) -> None:
    """All of its requests, even if its EOF arrives with them."""
    client.send(get(path) + get("two") + get("three")).half_close()
    server.release()
    received = client.receive_all()
    assert received.count(b"HTTP/1.1 200") == 3
    assert received.count(b"connection: close") <= 1


def test_complete_requests_before_a_truncated_one_are_answered(server: RunningServer, client: RawClient) -> None:
    client.send(get("wait") + POST % (b"echo", 10) + b"abc").half_close()
    wait_for(lambda: server.app.asked == ["/wait"])
    server.release()
    assert client.receive_all().count(b"HTTP/1.1 200") == 1
    assert server.app.asked == ["/wait"]


def test_a_half_closed_client_without_a_complete_request_gets_no_answer(server: RunningServer) -> None:
    for data in (b"", b"GET / HT", POST % (b"echo", 10) + b"abc", CHUNKS % b"echo" + b"1\r\n"):
        with server.client() as client:
            assert client.send(data).half_close().receive_all() == b""


def test_a_disconnect_ends_a_stream(server: RunningServer) -> None:
    with server.client() as client:
        client.send(get("stream")).receive(b"x" * 8000)
        client.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for(lambda: server.app.disconnected == ["/stream"] and not len(server.http_server))


def test_a_half_close_in_a_quiet_stream_is_noticed_at_once(server: RunningServer, client: RawClient) -> None:
    client.send(get("quiet")).receive(b"word")
    client.half_close()
    wait_for(lambda: server.app.disconnected == ["/quiet"] and not len(server.http_server))


def test_a_client_that_disconnects_while_waiting_is_reported(server: RunningServer) -> None:
    with server.client() as client:
        client.send(get("watch"))
        wait_for(lambda: server.app.asked == ["/watch"])
        client.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for(lambda: server.app.disconnected == ["/watch", "/watch"])


def test_a_half_closed_client_counts_as_disconnected_after_the_patience(server: RunningServer, client: RawClient) -> None:
    """A half-close and a full close look the same to the server."""
    began = time.monotonic()
    client.send(get("watch")).half_close()
    wait_for(lambda: server.app.disconnected == ["/watch", "/watch"], 10 * PATIENCE)
    assert time.monotonic() - began > 0.9 * PATIENCE


def test_a_client_that_waits_for_its_answer_is_not_reported_as_disconnected(server: RunningServer, client: RawClient) -> None:
    client.send(get("watch"))
    server.release()
    client.receive(b"GET /watch 0")
    client.send(get("next")).receive(b"GET /next 0")
    assert server.app.disconnected == []


def test_a_client_that_half_closes_during_a_long_answer_gets_all_of_it(server: RunningServer) -> None:
    server.limit_socket_buffer()
    with server.client() as client:
        client.send(get("page/200000")).receive(b"\r\n\r\n")
        client.half_close()
        assert client.read_with_pauses(1500, pause=0.001) == 200_000


def test_a_client_that_takes_no_data_is_cut_and_its_memory_is_freed(server: RunningServer, client: RawClient) -> None:
    """At once, without the garbage collector."""
    client.send(get("stream")).receive(b"x" * 8000)
    stopped = time.monotonic()
    (connection,) = [weakref.ref(connection) for connection in server.http_server._connections]
    gc.disable()
    try:
        wait_for(lambda: server.app.disconnected == ["/stream"] and not len(server.http_server), 10 * PATIENCE)
        assert time.monotonic() - stopped > 0.9 * PATIENCE
        wait_for(lambda: connection() is None)
    finally:
        gc.enable()
    assert server.app.written < 20_000_000


def test_an_answer_that_the_client_does_not_read_does_not_keep_the_connection_open(
    server: RunningServer, client: RawClient
) -> None:
    client.send(get("large/20000000").replace(b"Host", b"Connection: close\r\nHost"))
    wait_for(lambda: server.unsent() > 1_000_000)
    wait_for(lambda: not len(server.http_server), 10 * PATIENCE)


# --- timeouts


@pytest.mark.parametrize("before", [b"", b"\r\n", b"GET /", b"GET / HTTP/1.1\r\nX: a"])
def test_a_head_must_arrive_in_time(client: RawClient, before: bytes) -> None:
    client.send(before)
    began = time.monotonic()
    assert client.receive_all() == b""
    assert 0.2 < time.monotonic() - began < 2


@pytest.mark.parametrize("piece", [b"a", b"\r\n"])
def test_a_head_that_arrives_byte_by_byte_gets_no_more_time(client: RawClient, piece: bytes) -> None:
    began = time.monotonic()
    with pytest.raises(ConnectionError):
        for _ in range(100):
            client.send(piece)
            time.sleep(0.05)
    assert time.monotonic() - began < 2


def test_an_idle_connection_is_closed(client: RawClient) -> None:
    client.send(get("one")).receive(b"GET /one 0")
    began = time.monotonic()
    assert client.receive_all() == b""
    assert 0.5 < time.monotonic() - began < 3


# --- errors of the application


def test_an_exception_before_the_answer_is_answered_with_500(client: RawClient) -> None:
    received = client.send(get("broken") + get("two")).receive_all()
    assert received.startswith(b"HTTP/1.1 500")
    assert b"purpose" not in received
    assert received.count(b"HTTP/1.1") == 1


def test_a_header_with_a_line_break_is_answered_with_500(client: RawClient) -> None:
    received = client.send(get("split")).receive_all()
    assert received.startswith(b"HTTP/1.1 500")
    assert b"set-cookie" not in received


def test_an_exception_within_the_answer_leaves_it_visibly_incomplete(client: RawClient) -> None:
    client.send(get("late")).receive(b"some")
    assert client.is_cut() or b"0\r\n\r\n" not in client.received


def test_a_body_beyond_its_content_length_is_truncated_and_a_shorter_one_closes_the_connection(client: RawClient) -> None:
    received = client.send(get("sized/5/10") + get("sized/10/5") + get("two")).receive_all()
    assert received.count(b"HTTP/1.1") == 2
    assert b"\r\n\r\nxxxxxHTTP/1.1 200" in received
    assert received.endswith(b"\r\n\r\nxxxxx")


@pytest.mark.parametrize("path", ["silent", "cancelled"])
def test_an_application_that_sends_nothing_does_not_keep_the_connection_open(
    server: RunningServer, client: RawClient, path: str
) -> None:
    client.send(get(path))
    assert client.is_cut() or client.received == b""
    wait_for(lambda: not len(server.http_server))


# --- shutdown


@pytest.mark.parametrize("more", [b"", get("x"), get("x") * 3000])
def test_requests_after_connection_close_are_not_executed(server: RunningServer, client: RawClient, more: bytes) -> None:
    client.send(get("closing") + more)
    wait_for(lambda: bool(server.app.asked))
    head = client.receive(b"\r\n\r\n")
    client.send(POST % (b"effect", 2) + b"hi")
    received = head + client.receive_all()
    assert received.count(b"HTTP/1.1 ") == 1
    assert len(received.partition(b"\r\n\r\n")[2]) == 6_000_000
    assert server.app.asked == ["/closing"]


def test_a_connection_accepted_during_shutdown_is_not_served(server: RunningServer) -> None:
    """The kernel accepts a connection before the server sees it."""
    server_side, client_side = socket.socketpair()

    async def connect_late() -> None:
        await server.http_server.close(1)
        await server.loop.connect_accepted_socket(lambda: ServerConnection(server.http_server, server.loop), server_side)

    with client_side:
        client_side.settimeout(2)
        client_side.sendall(get("late"))
        asyncio.run_coroutine_threadsafe(connect_late(), server.loop).result(5)
        with suppress(ConnectionError):
            assert client_side.recv(1000) == b""
        wait_for(lambda: not len(server.http_server))
    assert server.app.asked == []


def test_shutdown_answers_pending_requests_and_nothing_else(server: RunningServer) -> None:
    with server.client() as idle, server.client() as busy, server.client() as streaming, server.client() as partial:
        idle.send(get("one")).receive(b"GET /one 0")
        partial.send(b"GET / HTTP")
        streaming.send(get("stream")).receive(b"x" * 8000)
        busy.send(get("wait") + get("two"))
        wait_for(lambda: "/wait" in server.app.asked)
        closing = server.close(0.4)
        assert idle.receive_all() == partial.receive_all() == b""
        server.release()
        received = busy.receive_all()
        assert received.count(b"HTTP/1.1 200") == 2
        assert received.count(b"connection: close") == 1
        closing.result(5)
        assert streaming.is_cut() or streaming.received
        assert not len(server.http_server)
        with pytest.raises(ConnectionError):
            server.client()


# --- the limit of connections


def test_a_connection_over_the_limit_gets_503_and_is_served_once_another_closes() -> None:
    with running_server("uvloop", limit=3) as server:
        first, *others = [server.client().send(get("one")) for _ in range(3)]
        for one in (first, *others):
            one.receive(b"GET /one 0")
        assert server.counts.open == 3
        with server.client() as extra:
            received = extra.send(get("one")).receive_all()
        assert received.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 5\r\n" in received
        assert b"connection: close\r\n" in received
        assert b"ROLECALL_MAX_CONNECTIONS" in received
        assert server.counts.reasons == ["overloaded"]
        refused = [server.client() for _ in range(3)]
        for one in refused:
            one.receive(b"HTTP/1.1 503")
        with server.client() as beyond:
            assert beyond.is_cut() or beyond.received == b""
        assert server.counts.open == 3
        first.connection.close()
        wait_for(lambda: server.counts.open == 2)
        with server.client() as next_one:
            next_one.send(get("one")).receive(b"GET /one 0")
            assert server.counts.open == 3
        for one in (*others, *refused):
            one.connection.close()
        wait_for(lambda: server.counts.open == 0)
