"""Files by reference at a real hub: large ones in little memory, cut ones that go on, and what ends them."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from hub.identity import tokens
from rolecall.model.principal import Kind, Principal
from tests.acceptance.loadclients import forget_peak, memory_peak, memory_used
from tests.acceptance.syncs.rooms import OWN_MOUNTS, check_mounts
from tests.helpers.certificates import new_authority
from tests.helpers.processes import ROLECALL, SERVERS, HubProcess, start_hub, wait_for

MIB = 1024 * 1024
FILES = "/registry/files"
MEMORY = 60
"""MiB that the hub may grow by, however large a file is."""
WITHIN = 3.0
"""Seconds. Two are promised."""
STEP = Random(5).randbytes(MIB)


@pytest.fixture(scope="module", params=SERVERS)
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with start_hub(tmp_path_factory.mktemp("hub"), server=request.param) as hub:
        yield hub


@pytest.fixture(scope="module")
def own_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with start_hub(tmp_path_factory.mktemp("hub"), reader_patience=1) as hub:
        yield hub


def ask(hub: HubProcess, method: str, path: str = "", content: Any = None, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.request(method, f"{hub.url}{FILES}{path}", content=content, headers=named, trust_env=False, timeout=60)


def begun(hub: HubProcess, length: int | None = None, **headers: str) -> str:
    """The id of an upload that can go on."""
    kept = {"Upload-Complete": "?0"} if length is None else {"Upload-Length": str(length)}
    answer = ask(hub, "POST", "?name=a.bin", **kept, **headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def offset(hub: HubProcess, file: str, **headers: str) -> int:
    answer = ask(hub, "HEAD", f"/{file}", **headers)
    assert answer.status_code == 200, answer.headers
    return int(answer.headers["upload-offset"])


class Upload:
    """A PATCH whose body is sent as the test wants."""

    def __init__(self, hub: HubProcess, file: str, *, at: int, size: int, **headers: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", hub.port), timeout=30)
        head = {"Host": "127.0.0.1", "Upload-Offset": str(at), "Content-Length": str(size), **headers}
        lines = [f"PATCH {FILES}/{file} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        self.socket.sendall("\r\n".join(lines).encode())

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def cut(self) -> None:
        self.socket.close()

    def answer(self) -> tuple[int, bytes]:
        """Waits for it. Status 0: the connection was closed without one."""
        with self.socket, http.client.HTTPResponse(self.socket) as found:
            try:
                found.begin()
                return found.status, found.read()
            except (http.client.HTTPException, ConnectionError):
                return 0, b""


def transfers(hub: HubProcess) -> int:
    """Uploads and downloads under way."""
    text = httpx.get(f"{hub.url}/metrics", trust_env=False).text
    return int(float(re.findall(r'share_used\{thing="uploads and downloads"\} (\S+)', text)[0]))


def random_pieces(count: int) -> Iterator[bytes]:
    """Mebibytes, each another."""
    for number in range(count):
        yield number.to_bytes(8, "big") + STEP[8:]


def downloaded(hub: HubProcess, file: str) -> str:
    """The digest of what comes."""
    digest = hashlib.sha256()
    with httpx.stream("GET", f"{hub.url}{FILES}/{file}", trust_env=False, timeout=60) as answer:
        assert answer.status_code == 200
        for piece in answer.iter_bytes(MIB):
            digest.update(piece)
    return digest.hexdigest()


# --- whole files


def test_a_file_is_uploaded_and_downloaded(hub: HubProcess) -> None:
    content = STEP[:300_000]
    made = ask(hub, "POST", "?name=%C3%A4.png", content, content_type="image/png")
    item = made.json()
    assert made.status_code == 201, made.text
    assert (item["name"], item["media_type"], item["size"], item["complete"]) == ("ä.png", "image/png", 300_000, True)
    assert item["sha256"] == hashlib.sha256(content).hexdigest()
    assert made.headers["location"] == item["url"] == f"{hub.url}{FILES}/{item['id']}"
    found = httpx.get(item["url"], trust_env=False)
    assert found.content == content
    assert found.headers["content-disposition"] == "attachment; filename=\"_.png\"; filename*=UTF-8''%C3%A4.png"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["content-security-policy"].startswith("sandbox;")
    head = ask(hub, "HEAD", f"/{item['id']}")
    assert (head.headers["content-length"], head.headers["upload-complete"], head.content) == ("300000", "?1", b"")
    part = ask(hub, "GET", f"/{item['id']}", range="bytes=100-199")
    assert (part.status_code, part.content) == (206, content[100:200])
    assert part.headers["content-range"] == "bytes 100-199/300000"
    assert ask(hub, "GET", f"/{item['id']}", range="bytes=-5").content == content[-5:]
    refused = ask(hub, "GET", f"/{item['id']}", range="bytes=300000-")
    assert (refused.status_code, refused.headers["content-range"]) == (416, "bytes */300000")
    assert ask(hub, "GET", f"/{item['id']}", if_none_match=found.headers["etag"]).status_code == 304
    assert ask(hub, "DELETE", f"/{item['id']}").status_code == 204
    assert ask(hub, "GET", f"/{item['id']}").json()["reason"] == "FILE_NOT_FOUND"


def test_a_file_of_unknown_length_comes_in_chunks(hub: HubProcess) -> None:
    made = ask(hub, "POST", "", random_pieces(3)).json()
    assert (made["size"], made["complete"]) == (3 * MIB, True)
    assert downloaded(hub, made["id"]) == made["sha256"]
    empty = ask(hub, "POST").json()
    assert (empty["size"], empty["complete"], ask(hub, "GET", f"/{empty['id']}").content) == (0, True, b"")


def _through(hub: HubProcess, size: int, memory: int = MEMORY) -> None:
    """A file of so many MiB goes in and out, by two clients each."""
    ask(hub, "POST", "", STEP)
    forget_peak(hub)
    before = memory_used(hub)
    file = begun(hub, size * MIB)
    digest = hashlib.sha256()

    def counted() -> Iterator[bytes]:
        for piece in random_pieces(size):
            digest.update(piece)
            yield piece

    answer = ask(hub, "PATCH", f"/{file}", counted(), upload_offset="0").json()
    assert (answer["complete"], answer["sha256"]) == (True, digest.hexdigest())
    assert downloaded(hub, file) == digest.hexdigest()
    assert memory_peak(hub) - before < memory, (before, memory_peak(hub))


def test_fifty_megabytes_go_in_and_out_in_little_memory(own_hub: HubProcess) -> None:
    _through(own_hub, 50)


@pytest.mark.soak
def test_a_gigabyte_goes_in_and_out_in_little_memory(own_hub: HubProcess) -> None:
    _through(own_hub, 1024)


def test_files_go_over_http_2(tmp_path: Path) -> None:
    """Its flow control holds up the client as a socket does."""
    authority = new_authority(tmp_path)
    with (
        start_hub(tmp_path / "hub", certificate=authority.certificate(), http2=True) as hub,
        httpx.Client(http2=True, verify=False, trust_env=False, timeout=60) as client,
    ):
        made = client.post(f"{hub.url}{FILES}", content=random_pieces(5))
        assert (made.http_version, made.status_code, made.json()["size"]) == ("HTTP/2", 201, 5 * MIB)
        assert hashlib.sha256(client.get(made.json()["url"]).content).hexdigest() == made.json()["sha256"]
        empty = client.post(f"{hub.url}{FILES}", headers={"Upload-Length": "3"}).json()
        added = client.patch(empty["url"], content=b"abc", headers={"Upload-Offset": "0"})
        assert added.json()["complete"] and client.get(empty["url"], headers={"Range": "bytes=1-"}).content == b"bc"


# --- cuts


def test_an_upload_that_is_cut_goes_on_where_it_was(hub: HubProcess) -> None:
    whole = b"".join(random_pieces(3))
    file = begun(hub, len(whole))
    upload = Upload(hub, file, at=0, size=len(whole))
    upload.send(whole[: MIB + 12_345])
    wait_for(lambda: offset(hub, file) > MIB // 2)
    upload.cut()
    wait_for(lambda: offset(hub, file) == MIB + 12_345)  # nothing that came is lost
    answer = ask(hub, "PATCH", f"/{file}", whole[MIB + 12_345 :], upload_offset=str(MIB + 12_345)).json()
    assert (answer["complete"], answer["sha256"]) == (True, hashlib.sha256(whole).hexdigest())


def test_an_upload_goes_on_after_the_hub_was_killed(tmp_path: Path) -> None:
    size = 40
    with start_hub(tmp_path / "hub") as hub:
        file = begun(hub, size * MIB)
        upload = Upload(hub, file, at=0, size=size * MIB)
        for piece in list(random_pieces(size))[:30]:
            upload.send(piece)
        wait_for(lambda: offset(hub, file) > 25 * MIB)
        hub.kill9()
        upload.cut()
    with start_hub(tmp_path / "hub", port=hub.port) as hub:
        at = offset(hub, file)
        assert 16 * MIB <= at <= 30 * MIB
        whole = b"".join(random_pieces(size))
        answer = ask(hub, "PATCH", f"/{file}", whole[at:], upload_offset=str(at)).json()
        assert (answer["complete"], answer["sha256"]) == (True, hashlib.sha256(whole).hexdigest())
        assert downloaded(hub, file) == answer["sha256"]


def test_a_file_that_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    with start_hub(tmp_path / "hub") as hub:
        made = ask(hub, "POST", "?name=kept", STEP).json()
        hub.kill9()
    with start_hub(tmp_path / "hub", port=hub.port) as hub:
        assert downloaded(hub, made["id"]) == made["sha256"]


def test_a_client_that_comes_back_takes_its_upload_over(hub: HubProcess) -> None:
    """The connection is half open: the hub has not noticed that its client has gone."""
    file = begun(hub, 10)
    first = Upload(hub, file, at=0, size=10)
    first.send(b"01234")
    wait_for(lambda: transfers(hub) > 0)  # the hub has read what it was sent before it was asked this
    answer = ask(hub, "PATCH", f"/{file}", b"56789", upload_offset="0")
    assert (answer.status_code, answer.headers["upload-offset"]) == (409, "5")
    assert ask(hub, "PATCH", f"/{file}", b"56789", upload_offset="5").json()["complete"]
    assert first.answer()[0] in (0, 409)
    assert ask(hub, "GET", f"/{file}").content == b"0123456789"


def test_a_stopping_hub_keeps_what_came_and_does_not_wait_for_the_rest(tmp_path: Path) -> None:
    with start_hub(tmp_path / "hub") as hub:
        file = begun(hub, 10)
        upload = Upload(hub, file, at=0, size=10)
        upload.send(b"01234")
        time.sleep(0.3)
        began = time.monotonic()
        stopping = threading.Thread(target=hub.stop)
        stopping.start()
        status, body = upload.answer()
        assert (status, b"HUB_DRAINING" in body) == (503, True)
        stopping.join(10)
        assert time.monotonic() - began < 5
    with start_hub(tmp_path / "hub", port=hub.port) as hub:
        assert offset(hub, file) == 5


# --- slow and hostile clients


def test_a_slow_disk_holds_up_the_client(own_hub: HubProcess) -> None:
    """It is stopped while the disk is: neither the hub nor the system takes more than some buffers."""
    file = begun(own_hub, 100 * MIB)
    path = own_hub.data_dir / "rolecall.db-files" / file[:2] / file
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)  # to open it takes as long as nobody reads from it
    before, sent = memory_used(own_hub), 0
    upload = Upload(own_hub, file, at=0, size=100 * MIB)
    upload.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        while sent < 100 * MIB:
            sent += upload.socket.send(STEP)
    assert sent < 20 * MIB
    assert memory_used(own_hub) - before < 10
    assert ask(own_hub, "POST", "", STEP).status_code == 201  # there are other threads
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        upload.cut()
        wait_for(lambda: offset(own_hub, file) == 0)
    finally:
        os.close(end)


def test_a_download_that_nobody_takes_is_cut_off(own_hub: HubProcess) -> None:
    file = ask(own_hub, "POST", "", random_pieces(30)).json()["id"]
    before = memory_used(own_hub)
    with socket.create_connection(("127.0.0.1", own_hub.port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(f"GET {FILES}/{file} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        wait_for(lambda: transfers(own_hub) == 1)
        assert memory_used(own_hub) - before < 10
        wait_for(lambda: transfers(own_hub) == 0, 10)


# --- tokens


class Tokens:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "tokens.json"

    def new(self, name: str, kind: Kind = Kind.CLIENT) -> tuple[str, str]:
        """The token, and its public id."""
        token, entry = tokens.new(self._path, Principal(name, kind), lasts=None, now=time.time())
        return token, entry.id

    def revoke(self, token: str) -> None:
        tokens.revoke(self._path, token)


@pytest.mark.parametrize("server", ["rolecall", "hypercorn"])
def test_what_is_under_way_ends_with_its_token(tmp_path: Path, server: str) -> None:
    data = tmp_path / "hub"
    data.mkdir()
    book = Tokens(data)
    (token, one), (other, _) = book.new("anna"), book.new("anna")
    with start_hub(data, server=server) as hub:
        mine, kept = {"Authorization": f"Bearer {token}"}, {"Authorization": f"Bearer {other}"}
        file = ask(hub, "POST", "", random_pieces(60), **mine).json()["id"]
        partial = begun(hub, 10, **mine)
        upload = Upload(hub, partial, at=0, size=10, **mine)
        upload.send(b"01234")
        reader = socket.create_connection(("127.0.0.1", hub.port), timeout=10)
        lines = [f"GET {FILES}/{file} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token}", "", ""]
        reader.sendall("\r\n".join(lines).encode())
        received = len(reader.recv(1000))
        began = time.monotonic()
        book.revoke(one)
        status, body = upload.answer()
        assert (status, b"UNAUTHENTICATED" in body) == (401, True)
        assert time.monotonic() - began < WITHIN
        time.sleep(max(0.0, began + WITHIN - time.monotonic()))
        try:
            while data_read := reader.recv(MIB):
                received += len(data_read)
        except ConnectionError:
            pass  # it was reset
        reader.close()
        assert received < 30 * MIB
        assert offset(hub, partial, **kept) == 5  # of the same holder
        assert downloaded_with(hub, file, kept) == 60 * MIB


def downloaded_with(hub: HubProcess, file: str, headers: dict[str, str]) -> int:
    with httpx.stream("GET", f"{hub.url}{FILES}/{file}", headers=headers, trust_env=False, timeout=60) as answer:
        return sum(len(piece) for piece in answer.iter_bytes(MIB))


# --- room


def test_a_workspace_without_room_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with start_hub(tmp_path / "hub", max_disk="10MiB", max_disk_per_workspace="4MiB", max_file="3MiB") as hub:
        for length in (None, "3145729"):
            refused = ask(hub, "POST", "", random_pieces(4), **({"Upload-Length": length} if length else {}))
            assert (refused.status_code, refused.json()["reason"]) == (413, "FILE_TOO_LARGE")
            assert "ROLECALL_MAX_FILE" in refused.json()["detail"]
        assert ask(hub, "POST", "", STEP + STEP).status_code == 201
        for announced in (False, True):
            body = STEP + STEP if announced else random_pieces(3)
            refused = ask(hub, "POST", "", body)
            assert (refused.status_code, refused.json()["reason"]) == (503, "OVERLOADED")
            assert "ROLECALL_MAX_DISK_PER_WORKSPACE" in refused.json()["detail"]
        assert stored_bytes(hub.data_dir) == 2 * MIB
        assert ask(hub, "POST", "", STEP).status_code == 201


def test_a_full_disk_takes_no_file_and_keeps_nothing_of_it(tmp_path: Path) -> None:
    """The reserve is for the ends of tasks: a file does not touch it."""
    data = tmp_path / "small"
    data.mkdir()
    check_mounts(data)
    mount = 'mount -t tmpfs -o size=24m tmpfs "$ROLECALL_DATA_DIR" && exec "$@"'
    argv = (*OWN_MOUNTS, "sh", "-c", mount, "sh", *ROLECALL, "serve")
    with start_hub(data, log=tmp_path / "hub.log", argv=argv, disk_reserve="8MiB") as hub:
        inside = Path(f"/proc/{hub.pid}/root{data}")
        assert ask(hub, "POST", "", random_pieces(2)).status_code == 201
        for body in (random_pieces(30), b"".join(random_pieces(20))):
            refused = ask(hub, "POST", "", body)
            assert (refused.status_code, refused.json()["reason"]) == (507, "OVERLOADED"), refused.text
            assert "ROLECALL_DISK_RESERVE" in refused.json()["detail"]
            assert stored_bytes(inside) == 2 * MIB
        free = int(subprocess.run(["stat", "-f", "-c", "%a", str(inside)], capture_output=True, check=True).stdout) * 4096
        assert free >= 4 * MIB  # the other half of the reserve is allocated ahead
        assert ask(hub, "POST", "", random_pieces(2)).status_code == 201


def stored_bytes(data: Path) -> int:
    return sum(path.stat().st_size for path in data.glob("*-files/*/*"))


def test_a_hub_without_files_says_so(tmp_path: Path) -> None:
    with start_hub(tmp_path / "hub", max_file=0) as hub:
        refused = ask(hub, "POST", "", b"x")
        assert (refused.status_code, refused.json()["reason"]) == (403, "FILES_OFF")
        assert "ROLECALL_MAX_FILE" in refused.json()["detail"]
