"""A log's events for one reader: the log's own bytes where the dialects agree, an exact translation where they do not."""

from __future__ import annotations

import pytest

from rolecall.errors import InvalidAnswer
from rolecall.model.a2a import Event, EventKind, JsonObject, TaskState
from rolecall.protocol.callers.event_encoder import EventEncoder, named_event
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
    said = {"artifactId": name, "parts": [{"kind": "text", "text": name}]}
    return logged({"kind": "artifact-update", **IDS, "artifact": said, "append": append, "lastChunk": False})


def test_a_reader_of_the_logs_own_dialect_gets_its_bytes() -> None:
    event = logged(STATUS)
    assert EventEncoder("0.3").encode(event) is event.body
    assert EventEncoder("0.3", "mine").encode(event) is event.body


def test_another_dialect_is_a_translation_without_what_it_does_not_know() -> None:
    assert parse(EventEncoder("1.0").encode(logged(STATUS))) == {**IDS, "status": {"state": "TASK_STATE_COMPLETED"}}


@pytest.mark.parametrize(("dialect", "name"), [("0.1", "mine"), ("1.0", "T")])
def test_a_callers_own_name_for_the_task_is_spoken_in_the_oldest_dialect_alone(dialect: str, name: str) -> None:
    pen = EventEncoder(dialect, "mine")
    for event in (logged(TASK), logged(STATUS), artifact("a")):
        document = parse(pen.encode(event))
        assert (document.get("taskId") or document.get("id")) == name


def test_in_the_oldest_dialect_an_artifact_is_its_place_among_those_that_were_seen() -> None:
    pen = EventEncoder("0.1")
    pen.encode(logged(TASK))
    updates = [
        parse(pen.encode(event)) for event in (artifact("a"), artifact("b"), artifact("a", append=True), artifact("old"))
    ]
    assert [update["artifact"]["index"] for update in updates] == [1, 2, 1, 0]
    assert [update["artifact"]["append"] for update in updates] == [False, False, True, False]


def test_what_cannot_be_said_is_an_error_that_names_the_place_and_both_dialects() -> None:
    odd = {"kind": "artifact-update", **IDS, "artifact": {"artifactId": "a", "parts": [{"kind": "song"}]}}
    with pytest.raises(InvalidAnswer) as refusal:
        EventEncoder("1.0").encode(logged(odd))
    assert '"artifact.parts[0]" must be a text, file or data part. (from 0.3 to 1.0)' in refusal.value.message


def test_a_bare_message_has_no_place_in_a_stream_of_the_oldest_dialect() -> None:
    message = {"kind": "message", "messageId": "m", "role": "agent", "parts": []}
    with pytest.raises(InvalidAnswer, match=r"A stream of 0\.1 cannot hold"):
        EventEncoder("0.1").encode(logged(message))


def test_the_oldest_servers_named_their_frames() -> None:
    assert {kind: named_event(kind) for kind in (EventKind.TASK, EventKind.STATUS, EventKind.ARTIFACT)} == {
        EventKind.TASK: "status",
        EventKind.STATUS: "status",
        EventKind.ARTIFACT: "artifact",
    }
