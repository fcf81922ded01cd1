"""HTTP/2, which a setting offers to clients with TLS, refuses malformed requests as well."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ResponseReceived

from tests.helpers.certificates import Authority, new_authority
from tests.helpers.processes import HubProcess, start_hub, status_of

pytestmark = pytest.mark.usefixtures("hub_healthy")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[HubProcess]:
    folder = tmp_path_factory.mktemp("hub")
    with start_hub(folder, certificate=authority.certificate(), http2=1, log_format="json") as hub:
        yield hub


@pytest.fixture
def hub_healthy(hub: HubProcess) -> Iterator[None]:
    """After every hostile input: the hub is ready, and logged no bug."""
    start = len(hub.output)
    yield
    assert status_of(f"{hub.url}/readyz") == 200
    assert "Traceback" not in hub.output[start:]
    assert "request_failed" not in hub.output[start:]


VALID = {":method": b"GET", ":path": b"/livez", ":scheme": b"https", ":authority": b"localhost"}


@pytest.mark.parametrize(
    "headers",
    [
        {":method": b"GET\xff"},
        {":path": b"/\xff"},
        {":path": b""},
        {":method": b"CONNECT"},
        {"x": b"a\r\nb"},
        {"content-length": b"9" * 5000},
        {"transfer-encoding": b"chunked"},
        {":authority": b"evil.example"},
        {"host": b"evil.example"},
    ],
    ids=str,
)
def test_19_a_malformed_head_in_http_2_is_refused(hub: HubProcess, authority: Authority, headers: dict[str, bytes]) -> None:
    """The hub answers what its own checks refuse; the server closes the connection on what it cannot parse."""
    fields = {**VALID, **headers}
    if fields[":method"] == b"CONNECT":
        del fields[":path"], fields[":scheme"]
    status = status_in_http_2(authority, hub.port, [(name.encode(), value) for name, value in fields.items()])
    assert status in (0, 421)


def test_19_http_2_is_supported(hub: HubProcess, authority: Authority) -> None:
    assert status_in_http_2(authority, hub.port, [(name.encode(), value) for name, value in VALID.items()]) == 200


def status_in_http_2(authority: Authority, port: int, headers: list[tuple[bytes, bytes]]) -> int:
    """The status of the answer, 0 if the connection ends without one."""
    config = H2Configuration(client_side=True, validate_outbound_headers=False, normalize_outbound_headers=False)
    http2 = H2Connection(config)
    http2.initiate_connection()
    http2.send_headers(1, headers, end_stream=True)
    context = ssl.create_default_context(cafile=authority.file)
    context.set_alpn_protocols(["h2"])
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    with context.wrap_socket(plain, server_hostname="localhost") as connection:
        connection.sendall(http2.data_to_send())
        while piece := connection.recv(65536):
            for event in http2.receive_data(piece):
                if isinstance(event, ResponseReceived):
                    return int(dict(event.headers or [])[b":status"])
    return 0
