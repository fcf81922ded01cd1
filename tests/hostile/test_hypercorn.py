"""The other server, which one setting chooses: it speaks HTTP/2 besides, and what is wrong in that is refused as well."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ResponseReceived

from tests.helpers.processes import HubProcess, start_hub

pytestmark = pytest.mark.usefixtures("unharmed")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with start_hub(tmp_path_factory.mktemp("hub"), server="hypercorn", log_format="json") as hub:
        yield hub


FINE = {":method": b"GET", ":path": b"/livez", ":scheme": b"http", ":authority": b"localhost"}


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
def test_19_nor_is_one_in_http_2(hub: HubProcess, headers: dict[str, bytes]) -> None:
    """What the hub's own rules refuse is answered; what makes no sense to the server ends the connection."""
    said = {**FINE, **headers}
    if said[":method"] == b"CONNECT":
        del said[":path"], said[":scheme"]
    status = asked_in_http_2(hub.port, [(name.encode(), value) for name, value in said.items()])
    assert status in (0, 421)


def test_19_http_2_is_spoken(hub: HubProcess) -> None:
    assert asked_in_http_2(hub.port, [(name.encode(), value) for name, value in FINE.items()]) == 200


def asked_in_http_2(port: int, headers: list[tuple[bytes, bytes]]) -> int:
    """The status of the answer, 0 if the connection ends without one."""
    config = H2Configuration(client_side=True, validate_outbound_headers=False, normalize_outbound_headers=False)
    talk = H2Connection(config)
    talk.initiate_connection()
    talk.send_headers(1, headers, end_stream=True)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(talk.data_to_send())
        while piece := line.recv(65536):
            for event in talk.receive_data(piece):
                if isinstance(event, ResponseReceived):
                    return int(dict(event.headers or [])[b":status"])
    return 0
