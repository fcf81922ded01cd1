"""The server with a certificate: handshakes, the two protocols behind them, and certificates that change."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import load_pem_x509_certificate
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated

from hub.server.tls import HTTP_1, HTTP_2, Certificate, validity_of
from rolecall.errors import ConfigError
from tests.helpers.certificates import Authority, new_authority
from tests.helpers.processes import wait_for
from tests.unit.server.served import LOOP_BY_NAME, RunningServer, running_server
from tests.unit.server.test_connection import get

HEAD_TIMEOUT = 0.4
DAY = 86_400.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Certificate:
    files = authority.certificate()
    return Certificate(files.cert, files.key, (HTTP_2, HTTP_1))


@pytest.fixture(params=LOOP_BY_NAME)
def server(request: pytest.FixtureRequest, certificate: Certificate) -> Iterator[RunningServer]:
    with running_server(request.param, certificate=certificate, head_timeout=HEAD_TIMEOUT, idle_timeout=0.6) as server:
        yield server


@pytest.fixture
def http(server: RunningServer, authority: Authority) -> Iterator[Callable[..., httpx.Client]]:
    """Makes clients that trust the authority."""
    clients: list[httpx.Client] = []
    context = ssl.create_default_context(cafile=authority.file)

    def client(*, http2: bool) -> httpx.Client:
        clients.append(httpx.Client(base_url=url(server), verify=context, http2=http2, trust_env=False, timeout=5))
        return clients[-1]

    yield client
    for one in clients:
        one.close()


def url(server: RunningServer) -> str:
    return f"https://127.0.0.1:{server.port}"


def secure(server: RunningServer, authority: Authority, *protocols: str) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=authority.file)
    context.set_alpn_protocols(list(protocols))
    return context.wrap_socket(socket.create_connection(("127.0.0.1", server.port), timeout=5), server_hostname="localhost")


@pytest.mark.parametrize("http2", [False, True])
def test_the_application_sees_a_secure_connection(http: Callable[..., httpx.Client], http2: bool) -> None:
    about = http(http2=http2).get("/scheme").json()
    assert (about["scheme"], about["version"]) == ("https", "2" if http2 else "1.1")
    assert about["tls"]["tls_version"] == 0x0304
    assert about["tls"]["cipher_suite"] in (0x1301, 0x1302, 0x1303)
    assert (about["tls"]["client_cert_chain"], about["tls"]["client_cert_name"]) == ([], None)


@pytest.mark.parametrize("http2", [False, True])
def test_bodies_and_long_answers_pass(server: RunningServer, http: Callable[..., httpx.Client], http2: bool) -> None:
    client = http(http2=http2)
    assert client.post("/echo", content=b"x" * 300_000).text == "POST /echo 300000"
    assert len(client.get("/page/3000000").content) == 3_000_000
    assert len(client.get("/pieces/30").content) == 30 * 8192
    client.close()
    wait_for(lambda: not len(server.http_server))


@pytest.mark.parametrize("http2", [False, True])
def test_a_streams_client_that_leaves_is_noticed(server: RunningServer, http: Callable[..., httpx.Client], http2: bool) -> None:
    client = http(http2=http2)
    with client.stream("GET", "/quiet") as answer:
        assert next(answer.iter_bytes()) == b"word"
    client.close()
    wait_for(lambda: server.app.disconnected == ["/quiet"])


def test_pipelined_requests_behind_the_handshake_are_answered_in_order(server: RunningServer, authority: Authority) -> None:
    with secure(server, authority, HTTP_1) as client:
        client.sendall(get("one") + get("two"))
        received = b""
        while b"GET /two 0" not in received:
            received += client.recv(65536)
        assert received.index(b"GET /one 0") < received.index(b"GET /two 0")


def test_a_client_that_never_completes_its_handshake_counts_and_is_cut(server: RunningServer) -> None:
    with server.client() as client:
        wait_for(lambda: server.counts.open == 1)
        began = time.monotonic()
        assert client.receive_all() == b""
        assert 0.5 * HEAD_TIMEOUT < time.monotonic() - began < 10 * HEAD_TIMEOUT
        wait_for(lambda: server.counts.open == 0)


@pytest.mark.parametrize("data", [get("plain"), b"\x16\x03\x01\x00\x05hello", bytes(1000)])
def test_what_is_no_handshake_is_cut_and_the_server_goes_on(
    server: RunningServer, http: Callable[..., httpx.Client], data: bytes
) -> None:
    with server.client() as client:
        client.send(data)
        assert b"HTTP/1.1" not in _all(client.connection)
    assert server.app.asked == []
    assert http(http2=False).get("/fine").status_code == 200


def test_a_connection_above_the_limit_is_closed_without_a_handshake(certificate: Certificate, authority: Authority) -> None:
    with running_server("uvloop", certificate=certificate, limit=1) as server, secure(server, authority, HTTP_1) as client:
        with server.client() as another:
            assert _all(another.connection) == b""
        client.sendall(get("still"))
        assert b"200 OK" in client.recv(65536)
        assert (server.counts.open, len(server.http_server)) == (1, 1)


def test_an_http_2_client_without_a_request_is_cut(server: RunningServer, authority: Authority) -> None:
    with secure(server, authority, HTTP_2) as client:
        client.sendall(_new_connection().data_to_send())
        began = time.monotonic()
        _all(client)
        assert time.monotonic() - began < 10 * HEAD_TIMEOUT
    wait_for(lambda: server.counts.open == 0)


def test_an_http_2_head_is_bounded(server: RunningServer, http: Callable[..., httpx.Client]) -> None:
    """The application refuses above half of the bound with a better error."""
    server.http_server.config.keep_alive_timeout = 30.0  # the client takes long to write a large head on a busy machine
    client = http(http2=True)
    client.get("/echo")  # the first request has a deadline of its own
    assert client.get("/echo", headers={"x": "a" * 60_000}).status_code == 200
    with pytest.raises(httpx.HTTPError):
        client.get("/echo", headers={"x": "a" * 70_000})


def test_a_client_that_resets_streams_as_soon_as_it_opens_them_is_cut(server: RunningServer, authority: Authority) -> None:
    connection = _new_connection()
    with secure(server, authority, HTTP_2) as client:
        try:
            for stream in range(1, 2001, 2):
                headers = [(":method", "GET"), (":path", "/wait"), (":scheme", "https"), (":authority", "localhost")]
                connection.send_headers(stream, headers, end_stream=True)
                connection.reset_stream(stream)
                client.sendall(connection.data_to_send())
        except OSError:
            pass
        assert not any(isinstance(event, ConnectionTerminated) for event in _events(connection, _all(client)))
    assert len(server.app.asked) <= 200
    server.release()


@pytest.mark.parametrize("http2", [False, True])
def test_a_shutdown_answers_what_is_under_way(server: RunningServer, http: Callable[..., httpx.Client], http2: bool) -> None:
    client = http(http2=http2)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.get, "/wait")
        wait_for(lambda: server.app.asked == ["/wait"])
        closing = server.close(5)
        server.release()
        assert answer.result(5).text == "GET /wait 0"
        closing.result(5)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_http_2_is_spoken_only_where_it_is_offered(authority: Authority) -> None:
    files = authority.certificate()
    certificate = Certificate(files.cert, files.key, (HTTP_1,))
    with running_server("uvloop", certificate=certificate) as server, secure(server, authority, HTTP_2, HTTP_1) as client:
        assert client.selected_alpn_protocol() == HTTP_1
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert b" 400 " in _all(client)


# --- the files


async def test_a_changed_certificate_is_shown_to_the_next_client(authority: Authority, tmp_path: Path) -> None:
    cert, key = _copied(authority, tmp_path)
    certificate = Certificate(cert, key, (HTTP_1,))
    before = certificate.context
    async with _kept_current(certificate):
        await asyncio.sleep(0.05)
        assert certificate.context is before
        _copied(authority, tmp_path)
        await _until(lambda: certificate.context is not before)
    assert certificate.extension(_Connection())["server_cert"] == cert.read_text()


async def test_what_cannot_be_read_leaves_the_certificate_before_in_use(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = _copied(authority, tmp_path)
    certificate = Certificate(cert, key, (HTTP_1,))
    before = certificate.context
    with caplog.at_level(logging.WARNING, "hub.server.tls"):
        async with _kept_current(certificate):
            cert.write_text("half of a cert")
            await _until(lambda: len(caplog.records) == 1)
            await asyncio.sleep(0.05)  # it is not told twice
            assert len(caplog.records) == 1
            key.unlink()
            await _until(lambda: len(caplog.records) >= 2)
            assert certificate.context is before
            _copied(authority, tmp_path)
            await _until(lambda: certificate.context is not before)
    reasons = [record.__dict__["why"] for record in caplog.records]
    assert "are no certificate and key in PEM" in reasons[0]
    assert f"tls_key: {key} cannot be read: No such file or directory." in reasons


async def test_a_certificate_that_clients_refuse_does_not_replace_one_that_they_accept(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = _copied(authority, tmp_path)
    now, begun = time.time(), list[float]()
    clock = [now]
    certificate = Certificate(cert, key, (HTTP_1,), wall=lambda: clock[0])
    before = certificate.context

    def logged(event: str, why: str = "") -> list[logging.LogRecord]:
        """Between the two files of a change, a look may find that they do not belong together."""
        found = [record for record in caplog.records if record.__dict__["event"] == event]
        return [record for record in found if why in str(record.__dict__.get("why"))]

    with caplog.at_level(logging.INFO, "hub.server.tls"):
        async with _kept_current(certificate, loaded=lambda: begun.append(certificate.validity.not_before)):
            _copied(authority, tmp_path, expired=True)
            await _until(lambda: bool(logged("certificate_kept", f"tls_cert: {cert} is of no use: it has ended (")))
            _copied(authority, tmp_path, early=True)
            await _until(lambda: bool(logged("certificate_kept", "it is not valid yet (")))
            await asyncio.sleep(0.05)
            assert (certificate.context, len(logged("certificate_kept", "of no use")), begun) == (before, 2, [])
            clock[0] = now + 2 * DAY  # the early one has begun
            await _until(lambda: certificate.context is not before)
    assert len(logged("certificate_loaded")) == 1
    assert all("not_after" in record.__dict__ for record in caplog.records)
    assert begun == [pytest.approx(now + DAY, abs=60)]


async def test_the_end_of_a_certificate_is_told_once_a_day_from_two_weeks_before(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = _copied(authority, tmp_path, days=15)
    clock = [time.time()]
    certificate = Certificate(cert, key, (HTTP_1,), wall=lambda: clock[0])
    async with _kept_current(certificate):
        for passed in (0.5, 2, 2.5, 3.5, 16):
            clock[0] = time.time() + passed * DAY
            await asyncio.sleep(0.04)
    found = [(record.getMessage(), round(record.__dict__["days_left"])) for record in caplog.records]
    soon = "the certificate ends soon"
    assert found == [(soon, 13), (soon, 12), ("clients refuse the certificate: it has ended", -1)]


def test_a_start_with_an_ended_certificate_warns(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = _copied(authority, tmp_path, expired=True)
    Certificate(cert, key, (HTTP_1,))
    assert [record.getMessage() for record in caplog.records] == ["clients refuse the certificate: it has ended"]


@pytest.mark.parametrize("days", [1, 30, 40 * 365])  # from 2050 on a certificate writes its times otherwise
def test_the_times_of_a_certificate_are_read(authority: Authority, days: int) -> None:
    pem = authority.certificate(days=days).cert.read_bytes()
    expected = load_pem_x509_certificate(pem)
    found = validity_of(pem.decode())
    assert found.not_before == expected.not_valid_before_utc.timestamp()
    assert found.not_after == expected.not_valid_after_utc.timestamp()


def test_files_that_cannot_be_used_are_explained(authority: Authority, tmp_path: Path) -> None:
    cert, key = _copied(authority, tmp_path)
    other = authority.certificate().key
    locked = tmp_path / "locked.pem"
    plain = load_pem_private_key(key.read_bytes(), None)
    locked.write_bytes(plain.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    assert _problem(cert, tmp_path / "none") == f"tls_key: {tmp_path / 'none'} cannot be read: No such file or directory."
    assert _problem(tmp_path, key) == f"tls_cert: {tmp_path} cannot be read: Is a directory."
    assert _problem(cert, other) == f"tls_key: {other} is not the key of the certificate {cert}."
    for pair in ((cert, locked), (key, cert), (cert, cert)):
        assert "are no certificate and key in PEM. The key must not be encrypted." in _problem(*pair)


class _Connection(ssl.SSLObject):
    """One whose properties are not known."""

    def __init__(self) -> None: ...
    def cipher(self) -> None: ...
    def version(self) -> None: ...


class _kept_current:
    def __init__(self, certificate: Certificate, loaded: Callable[[], None] = lambda: None) -> None:
        self._certificate = certificate
        self._loaded = loaded

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._certificate.keep_current(0.01, self._loaded))

    async def __aexit__(self, *_: Any) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def _copied(authority: Authority, folder: Path, **kind: Any) -> tuple[Path, Path]:
    """A new certificate in the same two files."""
    made = authority.certificate(**kind)
    cert, key = folder / "cert.pem", folder / "key.pem"
    made.cert.replace(cert)
    made.key.replace(key)
    return cert, key


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110  the files are read in a thread
            await asyncio.sleep(0.005)


def _problem(cert: Path, key: Path) -> str:
    with pytest.raises(ConfigError) as error:
        Certificate(cert, key, (HTTP_1,))
    (problem,) = error.value.problems
    return str(problem)


def _new_connection() -> H2Connection:
    connection = H2Connection(H2Configuration(client_side=True))
    connection.initiate_connection()
    return connection


def _events(connection: H2Connection, data: bytes) -> list[Any]:
    return list(connection.receive_data(data)) if data else []


def _all(client: socket.socket) -> bytes:
    """Everything until the connection ends, however it ends."""
    received = b""
    try:
        while piece := client.recv(65536):
            received += piece
    except OSError:
        pass
    return received
