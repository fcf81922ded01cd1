"""Answers on one connection: framing, limits, back-pressure, TLS."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from hub.outbound.client import Client
from hub.outbound.worker_guard import Guard
from rolecall.errors import HubError, InvalidAnswer, WorkerUnreachable
from tests.helpers.listening import ask
from tests.helpers.raw_server import LAST_CHUNK, Peer, RawServer, always, answer, chunk, chunked_head
from tests.helpers.tools import missing

GUARD = Guard([], [], allow_loopback=True)
BODY = b'{"a": 1}'

pytestmark = pytest.mark.virtual_time


async def body_of(client: Client, url: str) -> bytes:
    return await (await ask(client, url, BODY)).read_all()


# --- framing


@pytest.mark.parametrize("step", [1, 2, 3, 7])
async def test_an_answer_in_pieces_is_parsed_like_one_in_one_piece(client: Client, step: int) -> None:
    data = b"HTTP/1.1 100 Continue\r\n\r\n" + chunked_head() + chunk(b"data: 1\n") + chunk(b"\n") + LAST_CHUNK

    async def script(peer: Peer) -> None:
        while await peer.read_request() is not None:
            for at in range(0, len(data), step):
                await peer.write(data[at : at + step])
                await asyncio.sleep(0)

    async with RawServer(script) as server:
        for _ in range(2):
            assert await body_of(client, server.url) == b"data: 1\n\n"
        assert len(server.peers) == 1


async def test_an_answer_split_anywhere_is_parsed_the_same(client: Client) -> None:
    data = chunked_head() + chunk(b"first") + chunk(b"second") + b"0\r\nX-Trailer: 1\r\n\r\n"
    positions = iter(range(1, len(data)))

    async def script(peer: Peer) -> None:
        while await peer.read_request() is not None:
            at = next(positions)
            await peer.write(data[:at])
            await asyncio.sleep(0.001)
            await peer.write(data[at:])

    async with RawServer(script) as server:
        for _ in range(1, len(data)):
            assert await body_of(client, server.url) == b"firstsecond"
        assert len(server.peers) == 1


async def test_an_empty_header_does_not_hide_the_next(client: Client) -> None:
    data = b"HTTP/1.1 200 OK\r\nX-Empty:\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    async with RawServer(always(data)) as server:
        response = await ask(client, server.url, BODY)
        assert response.headers[b"content-type"] == b"application/json"


@pytest.mark.parametrize(
    ("data", "why"),
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
async def test_an_answer_that_is_not_acceptable_is_refused(client: Client, data: bytes, why: str) -> None:
    async with RawServer(always(data)) as server:
        with pytest.raises(InvalidAnswer, match=why):
            await body_of(client, server.url)


async def test_an_answer_before_the_request_was_read_is_received_and_closes_the_connection(client: Client) -> None:
    size_read = 0
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        nonlocal size_read
        await peer.write(answer(b"too large", status="413 Too Large"))
        await asyncio.sleep(0.05)
        try:
            while piece := await peer.reader.read(1 << 20):
                size_read += len(piece)
        finally:
            gone.set()

    async with RawServer(script) as server:
        response = await ask(client, server.url, b"x" * 50_000_000)
        assert response.status == 413
        assert await response.read_all() == b"too large"
        async with asyncio.timeout(2):
            await gone.wait()
    # At most what the kernel had buffered: the rest of the request has no reader.
    assert size_read < 40_000_000


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\0b"])
async def test_a_header_with_a_line_break_is_not_sent(client: Client, value: str) -> None:
    async with RawServer(always(answer(BODY))) as server:
        with pytest.raises(HubError):
            await ask(client, server.url, BODY, headers=[("Last-Event-ID", value)])
        assert server.peers == []


# --- back-pressure


async def test_a_server_is_paused_while_the_answer_is_not_read(client: Client) -> None:
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
        response = await ask(client, server.url, BODY, reads=False)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.1)
        assert response.buffered <= 1024 * 1024
        assert sent < total / 2
        assert len(await response.read_all()) == total


# --- TLS


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        missing("needs openssl to make a certificate")
    both = tmp_path / "both.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    subject = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "c.pem")]
    subprocess.run([*command.split(), *subject], check=True, capture_output=True, timeout=30)
    both.write_bytes((tmp_path / "key.pem").read_bytes() + (tmp_path / "c.pem").read_bytes())
    return both


@pytest.mark.real_time
async def test_https_checks_the_certificate_and_the_name(certificate: Path) -> None:
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate)
    context = ssl.create_default_context(cafile=str(certificate))
    async with RawServer(always(answer(BODY)), tls=own) as server:
        async with Client(GUARD, tls=context) as client:
            for _ in range(2):
                assert await body_of(client, f"https://localhost:{server.port}/") == BODY
            assert len(server.requests) == 2
            with pytest.raises(WorkerUnreachable, match="certificate"):
                await body_of(client, f"https://127.0.0.1:{server.port}/")
        async with Client(GUARD) as client:
            with pytest.raises(WorkerUnreachable, match="certificate"):
                await body_of(client, f"https://localhost:{server.port}/")
