"""Files by reference are found in messages and artifacts of every dialect, and replaced by their bytes, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from rolecall.errors import InvalidParams
from rolecall.model.a2a import EventKind, Ids, JsonObject, WorkerEvent
from rolecall.model.card import FILES_EXTENSION, reads_files
from rolecall.model.command import Send, Target
from rolecall.model.ids import START, FileId, TaskId, new_file_id
from rolecall.protocol.codec import MOST_FILES, Codec
from rolecall.protocol.dialects import DIALECTS
from rolecall.protocol.extensions.files import FileUrls, files_extension
from rolecall.protocol.text.jsontext import dump, parse

START_OF_URLS = "https://hub.example/behind/registry/files/"
FILE, OTHER = FileId("0a" * 16), FileId("0b" * 16)
URL = f"{START_OF_URLS}{FILE}"
urls = FileUrls(START_OF_URLS)
codec = Codec(lambda: 0.0, urls)


def old_part(url: str, **own: Any) -> JsonObject:
    return {"kind": "file", "file": {"uri": url, "name": "n", "mimeType": "m/n"}, **own}


def oldest_part(url: str, **own: Any) -> JsonObject:
    return {"type": "file", "file": {"uri": url, "name": "n", "mimeType": "m/n"}, **own}


def new_part(url: str, **own: Any) -> JsonObject:
    return {"url": url, "filename": "n", "mediaType": "m/n", **own}


Part = Callable[..., JsonObject]
PARTS: dict[str, Part] = {"0.1": oldest_part, "0.3": old_part, "1.0": new_part}
FILLED: dict[str, JsonObject] = {
    "0.1": {"type": "file", "file": {"bytes": "QUI=", "name": "n", "mimeType": "m/n"}},
    "0.3": {"kind": "file", "file": {"bytes": "QUI=", "name": "n", "mimeType": "m/n"}},
    "1.0": {"raw": "QUI=", "filename": "n", "mediaType": "m/n"},
}


def task_of(part: JsonObject) -> JsonObject:
    """With a file in each place where there may be one."""
    message = {"role": "user", "messageId": "m", "parts": [{"text": "x"}, part]}
    return {
        "id": "t",
        "status": {"state": "working", "message": deepcopy(message)},
        "history": [deepcopy(message), {"state": "working", "message": deepcopy(message)}],
        "artifacts": [{"artifactId": "a", "parts": [deepcopy(part), deepcopy(part)]}],
    }


WHERE = [
    "artifacts[0].parts[0]",
    "artifacts[0].parts[1]",
    "history[0].parts[1]",
    "history[1].message.parts[1]",
    "status.message.parts[1]",
]


@pytest.mark.parametrize("dialect", PARTS)
def test_files_are_found_in_messages_and_artifacts_wherever_they_are(dialect: str) -> None:
    task = task_of(PARTS[dialect](URL))
    assert sorted(urls.find(task, dialect)) == [(path, FILE) for path in WHERE]
    update = {"taskId": "t", "artifact": {"artifactId": "a", "parts": [PARTS[dialect](URL)]}}
    assert urls.find(update, dialect) == [("artifact.parts[0]", FILE)]
    params = {"message": {"parts": [PARTS[dialect](URL)]}, "metadata": {"parts": [PARTS[dialect](URL)]}}
    assert urls.find(params, dialect) == [("message.parts[0]", FILE)]


@pytest.mark.parametrize("dialect", PARTS)
def test_the_bytes_of_a_file_come_in_place_of_its_url(dialect: str) -> None:
    part = PARTS[dialect]
    own = {FILES_EXTENSION: {"size": 2}}
    given = task_of(part(URL, metadata=own))
    body = codec.with_bytes(dump(given), dialect, {FILE: "QUI="})
    assert parse(body) == task_of(FILLED[dialect])
    both = {"parts": [part(URL, metadata={**own, "k": 1}), part(f"{START_OF_URLS}{OTHER}", metadata=own)]}
    filled = parse(codec.with_bytes(dump(both), dialect, {FILE: "QUI="}))
    assert filled == {"parts": [{**FILLED[dialect], "metadata": {"k": 1}}, both["parts"][1]]}
    assert DIALECTS[dialect].shape.read(EventKind.MESSAGE, {"role": "agent", "messageId": "m", **filled})


@pytest.mark.parametrize(
    "url",
    [
        f"https://other.example/behind/registry/files/{FILE}",
        f"https://hub.example/registry/files/{FILE}",
        f"http://hub.example/behind/registry/files/{FILE}",
        f"{URL}#x",
        f"{URL}?x=1",
        f"{URL}/",
        f"{URL}x",
        f"{START_OF_URLS}../files/{FILE}",
        f"{START_OF_URLS}{FILE.upper()}x",
        f"{START_OF_URLS}%2e%2e/{FILE}",
        START_OF_URLS,
        f"x{URL}",
        f"{URL}\n",
    ],
)
@pytest.mark.parametrize("dialect", PARTS)
def test_another_url_is_left_alone(dialect: str, url: str) -> None:
    task = task_of(PARTS[dialect](url))
    assert urls.find(task, dialect) == []
    assert parse(codec.with_bytes(dump(task), dialect, {FILE: "QUI="})) == task


@pytest.mark.parametrize(
    ("dialect", "part"),
    [
        ("0.3", {"kind": "data", "data": old_part(URL)}),
        ("0.3", {"kind": "data", "data": {}, "file": {"uri": URL}}),
        ("0.3", {"kind": "text", "text": URL}),
        ("0.3", {"kind": "file", "file": {"bytes": "QUI=", "uri": 7}}),
        ("0.3", {"kind": "file", "file": URL}),
        ("0.3", new_part(URL)),
        ("0.1", {"type": "data", "data": {"parts": [oldest_part(URL)]}}),
        ("1.0", {"data": {"url": URL, "parts": [new_part(URL)]}}),
        ("1.0", {"data": None, "url": URL}),
        ("1.0", {"text": "x", "url": URL}),
        ("1.0", {"url": {"url": URL}}),
        ("1.0", old_part(URL)),
        ("1.0", URL),
    ],
)
def test_data_and_what_is_no_file_part_is_left_alone(dialect: str, part: Any) -> None:
    task = task_of(part) | {"metadata": {"parts": [PARTS[dialect](URL)]}, "message": "x", "artifact": [], "parts": {}}
    assert urls.find(task, dialect) == []
    assert parse(codec.with_bytes(dump(task), dialect, {FILE: "QUI="})) == task


def test_the_part_of_a_message_that_was_sent_may_have_the_old_spelling() -> None:
    part = {"type": "file", "content": {"uri": URL}}
    assert urls.find({"parts": [part]}, "0.1") == [("parts[0]", FILE)]
    message: JsonObject = {"parts": [part]}
    urls.fill(message, "0.1", {FILE: "QUI="})
    assert message == {"parts": [{"type": "file", "content": {"bytes": "QUI="}}]}
    assert part["content"] == {"uri": URL}, "the sender's document does not change"


def test_a_hub_without_an_address_has_no_files() -> None:
    nowhere = FileUrls()
    assert not nowhere.may_be_in(dump(task_of(old_part(URL))))
    assert nowhere.find(task_of(old_part(FILE)), "0.3") == []


def send_of(count: int) -> Send:
    parts = [old_part(f"{START_OF_URLS}{new_file_id()}") for _ in range(count)] or [{"kind": "text", "text": "hi"}]
    params = {"message": {"messageId": "m", "parts": [*parts, *parts[:1]]}}
    return DIALECTS["0.3"].requests.read_send(params, Target())


@pytest.mark.parametrize("count", [0, 1, MOST_FILES - 1])
def test_a_message_names_its_files_once_each_in_their_order(count: int) -> None:
    send = send_of(count)
    with_files = codec.with_files(send, codec.record(send, after=START))
    assert list(with_files.files) == [part["file"]["uri"][-32:] for part in send.params["message"]["parts"][:count]]


def test_a_message_with_more_files_than_the_hub_looks_up_is_refused() -> None:
    send = send_of(MOST_FILES)
    with pytest.raises(InvalidParams, match=f"may name {MOST_FILES} files of the hub, and this one names {MOST_FILES + 1}"):
        codec.with_files(send, codec.record(send, after=START))


def test_of_an_event_with_very_many_files_the_first_count() -> None:
    parts = [old_part(f"{START_OF_URLS}{new_file_id()}") for _ in range(3 * MOST_FILES)]
    document = {"kind": "artifact-update", "taskId": "wt", "contextId": "wc", "artifact": {"artifactId": "a", "parts": parts}}
    worker_event = WorkerEvent(EventKind.ARTIFACT, None, document, "0.3", "wt", "wc")
    body = codec.adopt(worker_event, Ids(TaskId("t"), "c", "wt", "wc")).body
    reported = codec.files_reported(worker_event, body)
    assert list(reported) == [part["file"]["uri"][-32:] for part in parts[:MOST_FILES]] == list(codec.files_in(body, "0.3"))


def card(*entries: Any) -> JsonObject:
    return {"capabilities": {"extensions": list(entries)}}


@pytest.mark.parametrize(
    ("entries", "reads"),
    [
        ([], False),
        ([{"uri": FILES_EXTENSION}], True),
        ([{"uri": FILES_EXTENSION, "params": 7}], True),
        ([{"uri": FILES_EXTENSION, "params": {"url": "https://other.example/registry/files", "max_size": 1}}], False),
        ([7, {"uri": 7}], False),
    ],
)
def test_who_reads_files_says_so_and_who_stores_them_is_sent_bytes(entries: list[Any], reads: bool) -> None:
    assert reads_files(card(*entries)) is reads


def test_the_hubs_own_entry_says_where_files_are() -> None:
    own = files_extension("https://hub.example/registry/files", 5)
    assert (own.uri, own.params) == (FILES_EXTENSION, {"url": "https://hub.example/registry/files", "max_size": 5})
