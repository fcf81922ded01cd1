"""Uploads and downloads that no correct client makes. Each is refused with a reason, and the file stays as it was."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import quote, quote_from_bytes

import httpx
import pytest

from tests.helpers.processes import HubProcess, start_hub, wait_for
from tests.hostile.raw import exchange, get

FILES = "/registry/files"
pytestmark = pytest.mark.usefixtures("hub_healthy")


@pytest.fixture(scope="module")
def file(hub: HubProcess) -> str:
    """A complete file of ten bytes."""
    return str(httpx.post(f"{hub.url}{FILES}", content=b"0123456789", trust_env=False).json()["id"])


@pytest.fixture
def partial(hub: HubProcess) -> str:
    """One that has three of its ten bytes."""
    made = httpx.post(f"{hub.url}{FILES}", content=b"012", headers={"Upload-Length": "10"}, trust_env=False)
    return str(made.json()["id"])


def request(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode("latin-1") + body


def offset(hub: HubProcess, file: str) -> str:
    return str(httpx.head(f"{hub.url}{FILES}/{file}", trust_env=False).headers["upload-offset"])


@pytest.mark.parametrize(
    "header",
    [
        "Upload-Length: -1",
        "Upload-Length: 1e3",
        "Upload-Length: 0x10",
        "Upload-Length: \xb2",
        "Upload-Length: 99999999999999999999999",
        "Upload-Length: 1, 2",
        "Upload-Complete: maybe",
        "Upload-Complete: 1",
        "Content-Type: nothing",
        "Content-Type: text/\xe4",
        f"Content-Type: text/{'x' * 300}",
        "Content-Encoding: gzip",
    ],
)
def test_a_wrong_header_of_an_upload_is_refused(hub: HubProcess, header: str) -> None:
    answer = exchange(hub.port, request("POST", FILES, header, "Content-Length: 1", "Connection: close", body=b"x"))
    assert answer.status in (400, 415), answer.text


@pytest.mark.parametrize("value", ["-1", "+3", "3.0", "\xb3", "", "4", "2", "9" * 30])
def test_a_wrong_offset_is_refused_and_the_file_stays_as_it_was(hub: HubProcess, partial: str, value: str) -> None:
    head = (f"Upload-Offset: {value}", "Content-Length: 7", "Connection: close")
    answer = exchange(hub.port, request("PATCH", f"{FILES}/{partial}", *head, body=b"3456789"))
    assert answer.status in (400, 409), answer.text
    assert offset(hub, partial) == "3"


@pytest.mark.parametrize(
    "path",
    [
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e",
        "..",
        ".",
        "rolecall.db",
        "%00",
        "0" * 31,
        "0" * 33,
        "0" * 5000,
        "A" * 32,
        "\xff",
        f"{'0' * 32}/..",
        f"{'0' * 32}%00",
        "0" * 32,
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PATCH", "DELETE"])
def test_an_id_names_a_file_of_the_hub_or_none(hub: HubProcess, method: str, path: str) -> None:
    head = ("Upload-Offset: 0", "Content-Length: 0", "Connection: close")
    answer = exchange(hub.port, request(method, f"{FILES}/{path}", *head))
    assert answer.status in (400, 404, 405), answer.text
    assert b"root:" not in answer.text


@pytest.mark.parametrize(
    "name",
    [
        quote("a\r\nSet-Cookie: x=1\r\n\r\n<html>"),
        quote('a"; filename="b.html'),
        quote("../../../etc/passwd"),
        quote("C:\\windows\\evil.exe"),
        quote("invoice\u202egpj.exe"),
        quote("\x1b[31m\x07"),
        quote_from_bytes(b"\xff\xfe\x80"),
        quote("\ud83d\ude00", errors="surrogatepass"),
        quote("\U0001f600" * 255),
        quote("a" * 255),
        "",
    ],
)
def test_whatever_a_file_is_called_its_download_has_one_harmless_header(hub: HubProcess, name: str) -> None:
    made = httpx.post(f"{hub.url}{FILES}?name={name}", content=b"x", trust_env=False)
    assert made.status_code == 201, made.text
    answer = exchange(hub.port, get(f"{FILES}/{made.json()['id']}"))
    head, _, body = answer.text.partition(b"\r\n\r\n")
    (disposition,) = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-disposition:")]
    assert disposition.startswith(b'content-disposition: attachment; filename="') and body == b"x"
    assert disposition.count(b'"') == 2 and b"\r\nset-cookie" not in head.lower()
    shown = disposition.partition(b'filename="')[2].partition(b'"')[0]
    assert not set(shown) & set(b'/\\:<>|?*\x00\x07\x1b"') and len(shown) <= 255


@pytest.mark.parametrize("name", ["%00", "a%00b", "x" * 256, "x" * 20_000])
def test_a_name_that_is_too_long_or_has_a_nul_is_refused(hub: HubProcess, name: str) -> None:
    assert exchange(hub.port, request("POST", f"{FILES}?name={name}", "Content-Length: 0", "Connection: close")).status == 400


@pytest.mark.parametrize(
    ("wanted", "status", "content"),
    [
        ("bytes=0-0", 206, b"0"),
        ("bytes=-0", 200, b"0123456789"),
        ("bytes=10-", 416, b""),
        ("bytes=10-20", 416, b""),
        ("bytes=9-" + "9" * 300, 206, b"9"),
        ("bytes=-" + "9" * 300, 206, b"0123456789"),
        ("bytes=5-2", 200, b"0123456789"),
        ("bytes=--5", 200, b"0123456789"),
        ("bytes=-5-", 200, b"0123456789"),
        ("bytes=0-1,3-4", 200, b"0123456789"),
        ("bytes=" + ",".join(["0-"] * 1000), 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
        ("\xff", 200, b"0123456789"),
    ],
)
def test_a_range_is_within_the_file_or_refused_or_none(
    hub: HubProcess, file: str, wanted: str, status: int, content: bytes
) -> None:
    answer = exchange(hub.port, get(f"{FILES}/{file}", f"Range: {wanted}"))
    assert answer.status == status, answer.text
    if content:
        assert answer.text.endswith(b"\r\n\r\n" + content)


def test_a_body_that_is_shorter_than_it_says_is_a_cut(hub: HubProcess, partial: str) -> None:
    with socket.create_connection(("127.0.0.1", hub.port), timeout=5) as connection:
        connection.sendall(request("PATCH", f"{FILES}/{partial}", "Upload-Offset: 3", "Content-Length: 7", body=b"345"))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1000)
    wait_for(lambda: offset(hub, partial) == "6")
    head = ("Upload-Offset: 6", "Content-Length: 4", "Connection: close")
    assert exchange(hub.port, request("PATCH", f"{FILES}/{partial}", *head, body=b"6789")).status == 200
    assert exchange(hub.port, get(f"{FILES}/{partial}")).text.endswith(b"0123456789")


def test_a_chunk_that_is_no_chunk_ends_the_upload_there(hub: HubProcess, partial: str) -> None:
    body = b"3\r\n345\r\nthis is no length\r\n"
    head = ("Upload-Offset: 3", "Transfer-Encoding: chunked")
    exchange(hub.port, request("PATCH", f"{FILES}/{partial}", *head, body=body), wait=3)
    wait_for(lambda: offset(hub, partial) in ("3", "6"))
    assert b"012" not in exchange(hub.port, get(f"{FILES}/{partial}")).text.partition(b"\r\n\r\n")[2]


def test_bytes_of_another_coding_are_refused(hub: HubProcess, partial: str) -> None:
    head = ("Upload-Offset: 3", "Content-Length: 7", "Content-Encoding: gzip", "Connection: close")
    answer = exchange(hub.port, request("PATCH", f"{FILES}/{partial}", *head, body=b"3456789"))
    assert (answer.status, offset(hub, partial)) == (415, "3")


def test_more_bytes_than_announced_leave_the_file_as_it_was(hub: HubProcess, partial: str) -> None:
    head = ("Upload-Offset: 3", "Content-Length: 8", "Connection: close")
    answer = exchange(hub.port, request("PATCH", f"{FILES}/{partial}", *head, body=b"3456789X"))
    assert (answer.status, offset(hub, partial)) == (409, "3")


@pytest.fixture
def small_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with start_hub(tmp_path_factory.mktemp("small"), max_transfers=20, max_transfers_per_workspace=10) as hub:
        yield hub


def test_of_many_open_uploads_as_many_are_served_as_the_share_allows(small_hub: HubProcess) -> None:
    with ExitStack() as stack:
        connections = []
        for _ in range(100):
            connections.append(stack.enter_context(socket.create_connection(("127.0.0.1", small_hub.port), timeout=5)))
            connections[-1].sendall(request("POST", FILES, "Content-Length: 1000000", body=b"x"))
        refused = 0
        for connection in connections:
            connection.settimeout(0.1)
            try:
                text = connection.recv(4000)
            except TimeoutError:
                continue
            refused += 1
            assert text.startswith(b"HTTP/1.1 503 ") and b"ROLECALL_MAX_TRANSFERS_PER_WORKSPACE" in text
        assert refused == len(connections) - 10
        assert httpx.get(f"{small_hub.url}/livez", trust_env=False, timeout=2).status_code == 200
    file = {"content": b"x", "trust_env": False}
    wait_for(lambda: httpx.post(f"{small_hub.url}{FILES}", **file).status_code == 201)
