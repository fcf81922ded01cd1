"""A log's events for one reader: the log's bytes if the dialects are the same, else an exact translation."""

from __future__ import annotations

import pytest

from rolecall.errors import InvalidAnswer
from rolecall.model.a2a import Event, EventKind, JsonObject, TaskState
from rolecall.protocol.callers.encoder import EventEncoder, named_event
from rolecall.protocol.text.jsontext import dump, parse

IDS = {"taskId": "T", "contextId": "C"}
STATUS = {"kind": "status-update", **IDS, "status": {"state": "completed"}, "final": True, "strange": 1}
TASK = {
    "kind": "task",
    "id": "T",
    "contextId": "C",
    "status": {"state": "working"},
    "artifacts": [{"artifactId": "old", "parts": [{"kind": "text", "text": "x"}]}],
}


def logged(document: JsonObject, dialect: str = "0.3") -> Event:
    kind = EventKind(document["kind"])
    return Event(kind, TaskState.COMPLETED if kind is EventKind.STATUS else None, dialect, dump(document))


def artifact(name: str, *, append: bool = False) -> Event:
    document = {"artifactId": name, "parts": [{"kind": "text", "text": name}]}
    return logged({"kind": "artifact-update", **IDS, "artifact": document, "append": append, "lastChunk": False})


def test_a_reader_of_the_logs_own_dialect_gets_its_bytes() -> None:
    event = logged(STATUS)
    assert EventEncoder("0.3").encode(event) is event.body
    assert EventEncoder("0.3", "mine").encode(event) is event.body


def test_another_dialect_gets_a_translation_without_unknown_members() -> None:
    assert parse(EventEncoder("1.0").encode(logged(STATUS))) == {**IDS, "status": {"state": "TASK_STATE_COMPLETED"}}


@pytest.mark.parametrize(("dialect", "name"), [("0.1", "mine"), ("1.0", "T")])
def test_an_alias_is_used_in_0_1_only(dialect: str, name: str) -> None:
    pen = EventEncoder(dialect, "mine")
    for event in (logged(TASK), logged(STATUS), artifact("a")):
        document = parse(pen.encode(event))
        assert (document.get("taskId") or document.get("id")) == name


def test_in_0_1_artifacts_are_numbered_in_the_order_of_their_events() -> None:
    pen = EventEncoder("0.1")
    pen.encode(logged(TASK))
    updates = [
        parse(pen.encode(event)) for event in (artifact("a"), artifact("b"), artifact("a", append=True), artifact("old"))
    ]
    assert [update["artifact"]["index"] for update in updates] == [1, 2, 1, 0]
    assert [update["artifact"]["append"] for update in updates] == [False, False, True, False]


def test_untranslatable_content_is_an_error_with_its_path_and_both_dialects() -> None:
    untranslatable = {"kind": "artifact-update", **IDS, "artifact": {"artifactId": "a", "parts": [{"kind": "xyz"}]}}
    with pytest.raises(InvalidAnswer) as refusal:
        EventEncoder("1.0").encode(logged(untranslatable))
    assert '"artifact.parts[0]" must be a text, file or data part. (from 0.3 to 1.0)' in refusal.value.message


def test_a_stream_of_0_1_cannot_hold_a_bare_message() -> None:
    message = {"kind": "message", "messageId": "m", "role": "agent", "parts": []}
    with pytest.raises(InvalidAnswer, match=r"A stream of 0\.1 cannot hold"):
        EventEncoder("0.1").encode(logged(message))


def test_frames_of_0_1_have_event_names() -> None:
    assert {kind: named_event(kind) for kind in (EventKind.TASK, EventKind.STATUS, EventKind.ARTIFACT)} == {
        EventKind.TASK: "status",
        EventKind.STATUS: "status",
        EventKind.ARTIFACT: "artifact",
    }
