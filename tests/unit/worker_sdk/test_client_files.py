"""A client sends large files by reference, and finds those of replies and events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rolecall.model.a2a import JsonObject
from rolecall.model.card import FILES_EXTENSION
from tests.helpers.raw_server import LAST_CHUNK, RawServer, chunk, chunked_head
from tests.unit.worker_sdk.file_hub import URL, FileHub
from tests.unit.worker_sdk.test_client import TASK, frame, status_update
from worker_sdk import File, HubClient, InvalidRequest, RolecallError
from worker_sdk.files.parts import FETCHED

pytestmark = pytest.mark.virtual_time

LARGE = b"x" * 300_000


def part(url: str, name: str = "f", size: int | None = None) -> JsonObject:
    own = {} if size is None else {"metadata": {FILES_EXTENSION: {"size": size}}}
    return {"kind": "file", "file": {"uri": url, "name": name}, **own}


def task_with(*parts: JsonObject) -> JsonObject:
    return {**TASK, "artifacts": [{"artifactId": str(at), "name": "a", "parts": [one]} for at, one in enumerate(parts)]}


@asynccontextmanager
async def client_of(hub: FileHub, *answers: Any, **options: Any) -> AsyncIterator[HubClient]:
    hub.answers.extend(one if isinstance(one, bytes) else chunked_head() + frame(1, one) + LAST_CHUNK for one in answers)
    async with RawServer(hub) as server, HubClient(server.url, **options) as client:
        yield client


def sent(hub: FileHub) -> list[JsonObject]:
    parts: list[JsonObject] = json.loads(hub.calls[-1].body)["params"]["message"]["parts"]
    return parts


async def test_files_are_uploaded_before_the_message_that_names_them(tmp_path: Path) -> None:
    hub, path = FileHub(100_000), tmp_path / "a.txt"
    path.write_bytes(LARGE)
    given = {"parts": [{"kind": "text", "text": "hi"}]}
    async with client_of(hub, TASK) as client:
        await client.send_to_agent("echo", given, files=[path, File("s", raw=b"small")])
    text, large, small = sent(hub)
    assert (text, small["file"]["bytes"]) == ({"kind": "text", "text": "hi"}, "c21hbGw=")
    assert large["file"] == {"uri": f"{URL}/{0:032x}", "name": "a.txt", "mimeType": "text/plain"}
    assert large["metadata"][FILES_EXTENSION]["size"] == len(LARGE)
    assert hub.calls[0].headers["x-a2a-extensions"] == FILES_EXTENSION
    assert hub.files[f"{0:032x}"].content == LARGE
    assert given == {"parts": [{"kind": "text", "text": "hi"}]}, "what was given does not change"


@pytest.mark.parametrize("refusal", [(404, "NOT_FOUND"), (403, "FILES_OFF")])
async def test_to_a_hub_that_stores_no_files_they_are_sent_in_the_message(refusal: tuple[int, str]) -> None:
    hub = FileHub()
    hub.refusal = refusal
    async with client_of(hub, TASK) as client:
        await client.call("echo", File("f", raw=LARGE))
    assert len(sent(hub)[0]["file"]["bytes"]) == 400_000


async def test_another_refusal_of_a_file_is_one_of_the_call() -> None:
    hub = FileHub()
    hub.refusal = (413, "FILE_TOO_LARGE")
    async with client_of(hub) as client:
        with pytest.raises(InvalidRequest, match="FILE_TOO_LARGE"):
            await client.send_to_agent("echo", File("f", raw=LARGE))
    assert hub.calls == []


async def test_many_small_files_do_not_all_go_into_the_message() -> None:
    hub = FileHub()
    async with client_of(hub, TASK) as client:
        await client.send_to_agent("echo", [File(str(number), raw=b"x" * 200_000) for number in range(30)])
    inline = [one["file"]["name"] for one in sent(hub) if "bytes" in one["file"]]
    assert inline == [str(number) for number in range(20)], "4 MiB of them"
    assert len(hub.files) == 10


async def test_a_reply_has_its_files_and_small_ones_are_in_memory() -> None:
    hub = FileHub()
    urls = [hub.keep(LARGE), hub.keep(b"y" * 10)]
    elsewhere = "https://elsewhere.example/picture"
    document = task_with(part(urls[0], size=len(LARGE)), part(urls[1], size=FETCHED), part(elsewhere))
    async with client_of(hub, document) as client:
        reply = await client.send_to_agent("echo", "hi")
        assert [(one.raw, one.url) for one in reply.artifacts] == [(LARGE, None), (None, urls[1]), (None, elsewhere)]
        assert [file.url for file in reply.files] == urls
        assert reply.files[0].raw == LARGE
        assert await reply.files[1].read() == b"y" * 10
    assert hub.methods == ["GET", "GET"]


async def test_a_file_that_the_hub_refuses_spoils_no_reply() -> None:
    hub = FileHub()
    async with client_of(hub, task_with(part(f"{URL}/{7:032x}"), part(hub.keep(LARGE)))) as client:
        reply = await client.send_to_agent("echo", "hi")
    refused, good = reply.files
    assert good.raw == LARGE
    with pytest.raises(InvalidRequest, match="FILE_NOT_FOUND"):
        _ = refused.raw
    assert [artifact.raw for artifact in reply.artifacts] == [None, LARGE]


def update(url: str) -> JsonObject:
    artifact = {"artifactId": "f", "parts": [part(url, size=len(LARGE))]}
    return {"kind": "artifact-update", "taskId": "t1", "contextId": "c1", "artifact": artifact}


async def test_events_have_their_files() -> None:
    hub = FileHub(1000)
    url = hub.keep(LARGE)
    opening = {**TASK, "status": {"state": "working"}, "artifacts": []}
    frames = frame(1, opening) + frame(2, update(url)) + frame(3, status_update("completed", final=True))
    async with client_of(hub, chunked_head() + frames + LAST_CHUNK) as client, client.stream("echo", "hi") as stream:
        events = [event async for event in stream]
    assert [len(event.files) for event in events] == [0, 1, 0]
    assert events[1].files[0].raw == LARGE
    assert events[1].artifact is not None and events[1].artifact.raw == LARGE


async def test_an_event_whose_file_cannot_be_read_is_not_passed_over() -> None:
    hub = FileHub(*[0] * 1000)
    url = hub.keep(LARGE)
    frames = frame(1, {**TASK, "status": {"state": "working"}, "artifacts": []}) + frame(2, update(url))
    async with client_of(hub, chunked_head() + frames + chunk(b": more\n")) as client, client.stream("echo", "hi") as stream:
        events = aiter(stream)
        assert (await anext(events)).kind == "task"
        with pytest.raises(RolecallError, match="A file of the event could not be read"):
            await anext(events)
    assert len(hub.calls) == 1, "the stream itself was not cut"
