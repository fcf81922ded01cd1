"""The HTTP client against scripted servers on real sockets: pool, framing, bounds, and what each failure is called."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from hub.errors import HubError, InvalidAnswer, WorkerBroke, WorkerRefused, WorkerUnreachable
from hub.net.guard import Guard
from hub.net.http1 import Client, Limits
from tests.helpers.raw_server import LAST_CHUNK, Peer, RawServer, always, answer, chunk, chunked_head

GUARD = Guard([], [], allow_loopback=True)
BODY = b'{"a": 1}'


async def ask(client: Client, url: str, *, head_timeout: float | None = None) -> bytes:
    response = await client.post(url, BODY, worker="echo:1", head_timeout=head_timeout)
    return await response.read_all(10_000_000)


# --- the pool


async def test_a_connection_is_used_again(client: Client) -> None:
    async with RawServer(always(answer(BODY))) as server:
        for _ in range(5):
            assert await ask(client, server.url) == BODY
        assert [len(peer.requests) for peer in server.peers] == [5]


async def test_head_and_body_are_one_request_with_only_our_headers(client: Client) -> None:
    async with RawServer(always(answer(BODY))) as server:
        response = await client.post(server.url + "a2a?x=1", BODY, worker="echo:1", headers=[("traceparent", "00-1")])
        response.close()
        (request,) = server.requests
    assert request.line == "POST /a2a?x=1 HTTP/1.1"
    assert request.body == BODY
    assert request.headers.pop("user-agent").startswith("rolecall/")
    assert request.headers == {
        "host": f"127.0.0.1:{server.port}",
        "content-type": "application/json",
        "content-length": "8",
        "accept": "application/json",
        "accept-encoding": "identity",
        "traceparent": "00-1",
    }


async def test_calls_at_once_take_a_connection_each_and_the_last_one_back_is_taken_first(client: Client) -> None:
    async def script(peer: Peer) -> None:
        while await peer.read_request() is not None:
            await asyncio.sleep(0.02 * peer.number)
            await peer.write(answer(b"%d" % peer.number))

    async with RawServer(script) as server:
        assert sorted(await asyncio.gather(*(ask(client, server.url) for _ in range(3)))) == [b"1", b"2", b"3"]
        assert [await ask(client, server.url) for _ in range(2)] == [b"3", b"3"]
        assert len(server.peers) == 3


@pytest.mark.parametrize(
    "said",
    [
        answer(BODY, more="Connection: close\r\n"),
        answer(BODY).replace(b"HTTP/1.1", b"HTTP/1.0"),
        answer(BODY) + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
        answer(BODY) + b"garbage",
    ],
)
async def test_a_connection_with_an_end_or_a_rest_is_not_used_again(client: Client, said: bytes) -> None:
    async with RawServer(always(said)) as server:
        for _ in range(2):
            assert await ask(client, server.url) == BODY
        assert [len(peer.requests) for peer in server.peers] == [1, 1]


async def test_bytes_that_come_while_nobody_asks_spoil_the_connection(client: Client) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(answer(b"%d" % peer.number))
        await asyncio.sleep(0.01)
        await peer.write(answer(b"poison"))
        await peer.gone()

    async with RawServer(script) as server:
        assert await ask(client, server.url) == b"1"
        await asyncio.sleep(0.05)
        assert await ask(client, server.url) == b"2"


async def test_a_connection_that_the_peer_closed_while_idle_is_not_used(client: Client) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(answer(b"%d" % peer.number))

    async with RawServer(script) as server:
        for number in (b"1", b"2", b"3"):
            assert await ask(client, server.url) == number
            await asyncio.sleep(0.02)


async def test_idle_connections_are_closed_by_the_clock() -> None:
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(answer(BODY))
        await peer.gone()
        gone.set()

    async with RawServer(script) as server, Client(GUARD, Limits(idle=0.05)) as client:
        await ask(client, server.url)
        async with asyncio.timeout(1):
            await gone.wait()
        await ask(client, server.url)
        assert len(server.peers) == 2


async def test_above_the_limit_of_an_origin_nothing_is_sent() -> None:
    async with RawServer(always(chunked_head())) as server, Client(GUARD, Limits(per_origin=2)) as client:
        held = [await client.post(server.url, BODY, worker="echo:1") for _ in range(2)]
        with pytest.raises(WorkerRefused):
            await client.post(server.url, BODY, worker="echo:1")
        assert len(server.requests) == 2
        held.pop().close()
        await asyncio.sleep(0.02)
        (await client.post(server.url, BODY, worker="echo:1")).close()


async def test_above_the_limit_of_all_an_idle_connection_makes_room() -> None:
    async with (
        RawServer(always(answer(BODY))) as first,
        RawServer(always(chunked_head())) as second,
        Client(GUARD, Limits(overall=2)) as client,
    ):
        await ask(client, first.url)
        for _ in range(2):
            await client.post(second.url, BODY, worker="echo:1")
        with pytest.raises(WorkerRefused):
            await client.post(second.url, BODY, worker="echo:1")
        with pytest.raises(WorkerRefused):
            await client.post(first.url, BODY, worker="echo:1")


async def test_failed_connections_use_up_no_place() -> None:
    async with RawServer(always(answer(BODY))) as server:
        pass
    async with Client(GUARD, Limits(per_origin=1, overall=1)) as client:
        for _ in range(3):
            with pytest.raises(WorkerUnreachable, match="connection refused"):
                await ask(client, server.url)
        async with RawServer(always(answer(BODY))) as other:
            assert await ask(client, other.url) == BODY


async def test_closing_the_client_closes_every_connection() -> None:
    gone: list[int] = []

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head() if peer.number == 1 else answer(BODY))
        await peer.gone()
        gone.append(peer.number)

    async with RawServer(script) as server:
        client = Client(GUARD)
        open_ended = await client.post(server.url, BODY, worker="echo:1")
        complete = await client.post(server.url, BODY, worker="echo:1")
        waiting = asyncio.create_task(open_ended.next_chunk(), name="reader")
        await asyncio.sleep(0)
        await client.aclose()
        with pytest.raises(WorkerBroke):
            await waiting
        assert await complete.read_all(100) == BODY
        await asyncio.sleep(0.02)
        assert sorted(gone) == [1, 2]
        with pytest.raises(WorkerRefused):
            await ask(client, server.url)


# --- what is a cut, and when it is safe


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_fresh_connection_that_dies_without_an_answer_may_have_run_the_call(
    client: Client, reads: bool, how: str
) -> None:
    async def script(peer: Peer) -> None:
        await (peer.read_request() if reads else peer.reader.read(1))
        if how == "reset":
            peer.reset()

    async with RawServer(script) as server:
        with pytest.raises(WorkerBroke):
            await ask(client, server.url)
        assert len(server.peers) == 1


async def test_a_reused_connection_that_dies_without_an_answer_is_not_tried_again(client: Client) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(answer(BODY))
        await peer.read_request()

    async with RawServer(script) as server:
        await ask(client, server.url)
        with pytest.raises(WorkerBroke, match="without an answer"):
            await ask(client, server.url)
        assert len(server.peers) == 1
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    "said", [answer(BODY)[:-1], answer(BODY)[:20], chunked_head() + chunk(b"x"), chunked_head() + b"5\r\nab"]
)
async def test_an_answer_that_stops_short_is_cut(client: Client, said: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(said)

    async with RawServer(script) as server:
        with pytest.raises(WorkerBroke, match="cut off"):
            await ask(client, server.url)


async def test_what_came_before_the_cut_is_handed_over_first(client: Client) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(chunked_head() + chunk(b"one") + chunk(b"two"))

    async with RawServer(script) as server:
        response = await client.post(server.url, BODY, worker="echo:1")
        await asyncio.sleep(0.02)
        assert await response.next_chunk() == b"onetwo"
        with pytest.raises(WorkerBroke):
            await response.next_chunk()


async def test_a_body_without_a_length_ends_with_the_connection(client: Client) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")

    async with RawServer(script) as server:
        assert await ask(client, server.url) == b"all of it"


async def test_a_slow_head_runs_out_of_time_and_takes_the_connection_along(client: Client) -> None:
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.write(b"HTTP/1.1 200 OK\r\n")
        await peer.gone()
        gone.set()

    async with RawServer(script) as server:
        with pytest.raises(WorkerBroke, match=r"answered the call within 0\.05 s"):
            await ask(client, server.url, head_timeout=0.05)
        async with asyncio.timeout(1):
            await gone.wait()


async def test_a_peer_that_does_not_take_the_request_runs_out_of_time() -> None:
    async def script(peer: Peer) -> None:
        peer.writer.transport.pause_reading()
        await asyncio.sleep(5)

    async with RawServer(script) as server, Client(GUARD, Limits(write=0.1)) as client:
        with pytest.raises(WorkerBroke, match="taken the call"):
            await client.post(server.url, b"x" * 50_000_000, worker="echo:1")


async def test_a_cancelled_call_closes_its_connection(client: Client) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        asked.set()
        await peer.gone()
        gone.set()

    async with RawServer(script) as server:
        call = asyncio.create_task(ask(client, server.url), name="call")
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        async with asyncio.timeout(1):
            await gone.wait()


# --- framing


@pytest.mark.parametrize("step", [1, 2, 3, 7])
async def test_an_answer_in_pieces_reads_like_one_in_one_piece(client: Client, step: int) -> None:
    said = b"HTTP/1.1 100 Continue\r\n\r\n" + chunked_head() + chunk(b"data: 1\n") + chunk(b"\n") + LAST_CHUNK

    async def script(peer: Peer) -> None:
        while await peer.read_request() is not None:
            for at in range(0, len(said), step):
                await peer.write(said[at : at + step])
                await asyncio.sleep(0)

    async with RawServer(script) as server:
        for _ in range(2):
            assert await ask(client, server.url) == b"data: 1\n\n"
        assert len(server.peers) == 1


async def test_an_answer_cut_in_two_anywhere_reads_the_same(client: Client) -> None:
    said = chunked_head() + chunk(b"first") + chunk(b"second") + b"0\r\nX-Trailer: 1\r\n\r\n"
    cuts = iter(range(1, len(said)))

    async def script(peer: Peer) -> None:
        while await peer.read_request() is not None:
            at = next(cuts)
            await peer.write(said[:at])
            await asyncio.sleep(0.001)
            await peer.write(said[at:])

    async with RawServer(script) as server:
        for _ in range(1, len(said)):
            assert await ask(client, server.url) == b"firstsecond"
        assert len(server.peers) == 1


async def test_an_empty_header_does_not_swallow_the_next(client: Client) -> None:
    said = b"HTTP/1.1 200 OK\r\nX-Empty:\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    async with RawServer(always(said)) as server:
        response = await client.post(server.url, BODY, worker="echo:1")
        assert response.headers[b"content-type"] == b"application/json"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (answer(b"\x1f\x8b", more="Content-Encoding: gzip\r\n"), "compressed"),
        (answer(b"{}", more="Content-Encoding: identity\r\nContent-Encoding: br\r\n"), "compressed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "transfer coding"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}", "HTTP"),
        (chunked_head() + b"zz\r\n", "HTTP"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", "another protocol"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, "head"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, "head"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 15_000 + b"Content-Length: 2\r\n\r\n{}", "head is longer"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000, "head"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"x" * 2_000_000, "head or trailer|longer"),
    ],
)
async def test_an_answer_that_is_not_what_was_asked_for_is_refused(client: Client, said: bytes, why: str) -> None:
    async with RawServer(always(said)) as server:
        with pytest.raises(InvalidAnswer, match=why):
            await ask(client, server.url)


async def test_an_answer_before_the_request_was_read_is_heard_and_ends_the_connection(client: Client) -> None:
    taken = 0
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        nonlocal taken
        await peer.write(answer(b"too large", status="413 Too Large"))
        await asyncio.sleep(0.05)
        try:
            while piece := await peer.reader.read(1 << 20):
                taken += len(piece)
        finally:
            gone.set()

    async with RawServer(script) as server:
        response = await client.post(server.url, b"x" * 50_000_000, worker="echo:1")
        assert response.status == 413
        assert await response.read_all(100) == b"too large"
        async with asyncio.timeout(2):
            await gone.wait()
    # What was in the kernel's hands already; the rest of the request has no reader any more.
    assert taken < 40_000_000


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\0b"])
async def test_a_header_with_a_line_break_is_not_sent(client: Client, value: str) -> None:
    async with RawServer(always(answer(BODY))) as server:
        with pytest.raises(HubError):
            await client.post(server.url, BODY, worker="echo:1", headers=[("Last-Event-ID", value)])
        assert server.peers == []


# --- back-pressure


async def test_a_server_is_held_back_while_nobody_reads(client: Client) -> None:
    sent = 0
    total = 64 * 1024 * 1024

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.read_request()
        await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        piece = b"x" * 65536
        while sent < total:
            await peer.write(piece)
            sent += len(piece)

    async with RawServer(script) as server:
        response = await client.post(server.url, BODY, worker="echo:1")
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.1)
        assert response.buffered <= 1024 * 1024
        assert sent < total / 2
        received = 0
        while data := await response.next_chunk():
            received += len(data)
        assert received == total


# --- TLS


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    both = tmp_path / "both.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    subject = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "c.pem")]
    subprocess.run([*command.split(), *subject], check=True, capture_output=True, timeout=30)
    both.write_bytes((tmp_path / "key.pem").read_bytes() + (tmp_path / "c.pem").read_bytes())
    return both


async def test_https_checks_the_certificate_and_the_name(certificate: Path) -> None:
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with RawServer(always(answer(BODY)), tls=own) as server:
        async with Client(GUARD, tls=trusting) as client:
            for _ in range(2):
                assert await ask(client, f"https://localhost:{server.port}/") == BODY
            assert len(server.requests) == 2
            with pytest.raises(WorkerUnreachable, match="certificate"):
                await ask(client, f"https://127.0.0.1:{server.port}/")
        async with Client(GUARD) as client:
            with pytest.raises(WorkerUnreachable, match="certificate"):
                await ask(client, f"https://localhost:{server.port}/")
