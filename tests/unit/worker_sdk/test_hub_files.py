"""Files at a hub are sent and read in pieces, also over cuts, and tokens go to no other host."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rolecall.model.a2a import JsonObject
from rolecall.model.card import FILES_EXTENSION
from tests.helpers.raw_server import RawServer
from tests.unit.worker_sdk.file_hub import URL, FileHub
from worker_sdk import File, HubBusy, HubUnreachable, RolecallError, StreamLost
from worker_sdk.calling.http import HubLink
from worker_sdk.files.content import AtHub
from worker_sdk.files.hub_files import HubFiles, HubStore
from worker_sdk.files.parts import FETCHED

pytestmark = pytest.mark.virtual_time

CONTENT = os.urandom(3_000_000)
STORE = HubStore(URL, 2**31)


@asynccontextmanager
async def files_at(hub: FileHub, store: HubStore | None = STORE, **options: Any) -> AsyncIterator[HubFiles]:
    async with RawServer(hub) as server:
        link = HubLink(server.url.rstrip("/"), "secret")
        try:
            yield HubFiles(link, store=store, **options)
        finally:
            await link.close()


def content_of(file: File) -> AtHub:
    assert isinstance(file.content, AtHub)
    return file.content


def by_reference(url: str, **own: object) -> JsonObject:
    return {"kind": "file", "file": {"uri": url, "name": "f"}, "metadata": {FILES_EXTENSION: own}}


def texts_in(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.iterdir()]


@pytest.mark.parametrize("from_disk", [True, False])
async def test_a_large_file_goes_to_the_hub_and_its_part_names_it(from_disk: bool, tmp_path: Path) -> None:
    hub, path = FileHub(), tmp_path / "a b.png"
    path.write_bytes(CONTENT)
    file = File(path=path) if from_disk else File("a b.png", "image/png", CONTENT)
    async with files_at(hub) as files:
        part = await files.part(file)
    (kept,) = hub.files.values()
    assert (kept.content, kept.name, kept.media_type) == (CONTENT, "a b.png", "image/png")
    uri = f"{URL}/{0:032x}"
    own = {"size": len(CONTENT), "sha256": "ab"}
    file_member = {"uri": uri, "name": "a b.png", "mimeType": "image/png"}
    assert part == {"kind": "file", "file": file_member, "metadata": {FILES_EXTENSION: own}}
    assert hub.methods == ["POST", "PATCH"]


@pytest.mark.parametrize("media_type", ["text/plain\r\nx: y", "bild/schön", "x" * 5_000])
async def test_a_media_type_that_is_none_goes_into_no_header(media_type: str) -> None:
    hub = FileHub()
    async with files_at(hub) as files:
        part = await files.part(File("f", media_type, CONTENT))
    (kept,) = hub.files.values()
    assert (kept.media_type, part["file"]["mimeType"]) == ("application/octet-stream", media_type)


@pytest.mark.parametrize("cuts", [[0], [1_000_000], [1_000_000, 0, 1_999_999]])
async def test_an_upload_that_is_cut_goes_on_where_it_was(cuts: Sequence[int]) -> None:
    hub = FileHub(*cuts)
    async with files_at(hub) as files:
        await files.upload(File("f", raw=CONTENT), len(CONTENT))
    (kept,) = hub.files.values()
    assert kept.content == CONTENT
    offsets = [int(headers["upload-offset"]) for method, _, headers in hub.requests if method == "PATCH"]
    assert offsets == [0, *[sum(cuts[: at + 1]) for at in range(len(cuts))]]


@pytest.mark.parametrize("cuts", [[0], [1_000_000], [1_000_000, 0, 1_500_000]])
async def test_a_download_that_is_cut_goes_on_where_it_was(cuts: Sequence[int]) -> None:
    hub = FileHub(*cuts)
    url = hub.keep(CONTENT)
    async with files_at(hub) as files:
        assert b"".join([chunk async for chunk in files.chunks(url)]) == CONTENT
    assert len(hub.requests) == len(cuts) + 1


async def test_a_hub_that_is_busy_is_asked_again_and_one_that_stays_away_is_given_up() -> None:
    hub = FileHub()
    async with files_at(hub) as files:
        url = hub.keep(CONTENT)
        hub.busy = 2
        assert b"".join([chunk async for chunk in files.chunks(url)]) == CONTENT
        hub.cuts.extend([0] * 100)
        began = asyncio.get_running_loop().time()
        with pytest.raises((StreamLost, HubUnreachable)):
            await files.upload(File("f", raw=CONTENT), len(CONTENT))
        assert 60 < asyncio.get_running_loop().time() - began < 75


@pytest.mark.parametrize("waits", [True, False])
async def test_a_hub_that_is_away_is_waited_for_by_workers_alone(waits: bool) -> None:
    hub = FileHub()
    hub.busy = 3
    async with files_at(hub, waits=waits) as files:
        if waits:
            assert (await files.upload(File("f", raw=CONTENT), len(CONTENT)))["complete"]
            return
        with pytest.raises(HubBusy):
            await files.upload(File("f", raw=CONTENT), len(CONTENT))
    assert hub.methods == ["POST"]


async def test_progress_begins_the_time_anew() -> None:
    hub = FileHub(*[25_000] * 120)
    async with files_at(hub) as files:
        await files.upload(File("f", raw=CONTENT), len(CONTENT))
    assert next(iter(hub.files.values())).content == CONTENT


async def test_small_files_are_sent_with_the_message_until_there_are_many() -> None:
    hub = FileHub()
    small, large = File("s", raw=b"x" * 10), File("l", raw=b"x" * 11)
    async with files_at(hub, threshold=10) as files:
        assert (await files.part(small))["file"] == {"bytes": "eHh4eHh4eHh4eA==", "name": "s"}
        assert "uri" in (await files.part(large))["file"]
        assert "uri" in (await files.part(small, room=9))["file"]
    async with files_at(hub, threshold=None) as files:
        assert "bytes" in (await files.part(large))["file"]


async def test_a_file_that_came_from_the_hub_is_passed_on_without_another_upload() -> None:
    hub, other = FileHub(), FileHub()
    url = hub.keep(CONTENT, "f")
    async with files_at(hub) as files, files_at(other) as elsewhere:
        file = files.find(by_reference(url, size=len(CONTENT)))
        assert file is not None
        assert await files.part(file) == by_reference(url, size=len(CONTENT))
        assert hub.methods == []
        hub.cuts.append(5)
        other.cuts.append(1_000_000)
        moved = await elsewhere.part(file)
        assert moved["file"]["uri"].startswith(URL)
    assert next(iter(other.files.values())).content == CONTENT


async def test_a_file_that_becomes_shorter_while_it_is_sent_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(CONTENT)
    async with files_at(FileHub()) as files:
        with pytest.raises(RolecallError, match="became shorter"):
            await files.upload(File(path=path), len(CONTENT) + 1)


@pytest.mark.parametrize(
    "url",
    [
        f"https://evil.example/registry/files/{0:032x}",
        f"{URL}/{0:032x}#x",
        f"{URL}/{0:032x}?x",
        f"{URL}/../files/{0:032x}",
        f"{URL}/{0:032x}/",
        f"{URL}/short",
        f"{URL}x/{0:032x}",
        f"http://public.example/hub/registry/files/{0:032x}",
    ],
)
async def test_another_url_is_no_file_of_the_hub(url: str) -> None:
    hub = FileHub()
    hub.keep(CONTENT)
    async with files_at(hub) as files:
        assert files.find(by_reference(url, size=1)) is None


async def test_who_does_not_know_the_hubs_public_url_reads_by_id_from_the_hub_it_knows() -> None:
    hub = FileHub()
    url = hub.keep(CONTENT)
    async with files_at(hub, store=None) as files:
        file = files.find(by_reference(url, size=len(CONTENT)))
        assert file is not None and await file.read() == CONTENT
        assert files.find(by_reference(f"https://elsewhere.example/files/{0:032x}", size=1)) is None
    assert [path for _, path, _ in hub.requests] == [f"/registry/files/{0:032x}"]


async def test_a_file_is_read_as_chunks_saved_or_fetched(tmp_path: Path) -> None:
    hub = FileHub(1000)
    url = hub.keep(CONTENT)
    async with files_at(hub) as files:
        file = files.find(by_reference(url, size=len(CONTENT)))
        assert file is not None and file.size == len(CONTENT)
        with pytest.raises(ValueError, match=r"file\.chunks\(\)"):
            _ = file.raw
        assert await file.save(tmp_path) == tmp_path / "f"
        assert (tmp_path / "f").read_bytes() == CONTENT
        assert await content_of(file).fetch(len(CONTENT) - 1) == 0
        assert await content_of(file).fetch(FETCHED) == len(CONTENT)
        assert file.raw == CONTENT
        opened = file.open()
        assert opened.read() == CONTENT


async def test_a_file_that_is_larger_than_its_part_says_is_not_taken_into_memory() -> None:
    hub = FileHub()
    url = hub.keep(CONTENT)
    async with files_at(hub) as files:
        file = files.find(by_reference(url, size=5))
        assert file is not None
        assert await content_of(file).fetch(len(CONTENT) - 1) == 0
        with pytest.raises(ValueError, match="too large to be read before"):
            _ = file.raw


async def test_a_save_that_fails_leaves_nothing(tmp_path: Path) -> None:
    hub = FileHub()
    async with files_at(hub) as files:
        file = files.find(by_reference(f"{URL}/{7:032x}", size=5))
        assert file is not None
        (tmp_path / "f").write_text("before")
        with pytest.raises(RolecallError, match="FILE_NOT_FOUND"):
            await file.save(tmp_path / "f")
    assert texts_in(tmp_path) == ["before"]
