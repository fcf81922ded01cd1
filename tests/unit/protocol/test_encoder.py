"""A log's events for one reader: the log's bytes if the dialects are the same, else an exact translation."""

from __future__ import annotations

import pytest

from rolecall.errors import InvalidAnswer
from rolecall.model.a2a import Event, EventKind, JsonObject, Logged, TaskState
from rolecall.model.ids import Cursor
from rolecall.protocol.callers.encoder import EventEncoder, SseEncoder, Translations
from rolecall.protocol.text.jsontext import dump, parse
from rolecall.protocol.v0_1.view import event_name

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
    assert {kind: event_name(kind) for kind in (EventKind.TASK, EventKind.STATUS, EventKind.ARTIFACT)} == {
        EventKind.TASK: "status",
        EventKind.STATUS: "status",
        EventKind.ARTIFACT: "artifact",
    }


# --- what readers share


def test_readers_of_one_dialect_share_the_translation_of_an_event() -> None:
    translations = Translations()
    event, again = logged(STATUS), logged(STATUS)
    first, second = (EventEncoder("1.0", alias, translations) for alias in ("", "mine"))
    assert first.encode(event) is second.encode(event)
    assert first.encode(again) is not first.encode(event)
    assert first.encode(again) == first.encode(event)


def test_readers_of_two_dialects_share_nothing() -> None:
    translations = Translations()
    event = logged(STATUS)
    assert EventEncoder("0.3", "", translations).encode(event) is event.body
    newest = parse(EventEncoder("1.0", "", translations).encode(event))
    oldest = [parse(EventEncoder("0.1", alias, translations).encode(event)) for alias in ("a", "b")]
    assert newest["taskId"] == "T"
    assert [document["id"] for document in oldest] == ["a", "b"]


def test_shared_translations_are_few_and_small() -> None:
    translations = Translations()
    encoder = EventEncoder("1.0", "", translations)
    first = artifact("first")
    kept = encoder.encode(first)
    for at in range(300):
        encoder.encode(artifact(str(at)))
    assert encoder.encode(first) is not kept
    small = artifact("small")
    kept = encoder.encode(small)
    assert encoder.encode(small) is kept
    encoder.encode(artifact("x" * 200_000))
    assert translations.size < 256 * 1024
    assert encoder.encode(small) is not kept


def test_an_event_that_cannot_be_translated_is_an_error_for_every_reader() -> None:
    translations = Translations()
    untranslatable = logged({"kind": "artifact-update", **IDS, "artifact": {"artifactId": "a", "parts": [{"kind": "xyz"}]}})
    for _ in range(2):
        with pytest.raises(InvalidAnswer):
            EventEncoder("1.0", "", translations).encode(untranslatable)


@pytest.mark.parametrize("call_id", [b'"1"', b"7", b"null"])
def test_a_frame_holds_the_event_in_the_response_to_its_readers_call(call_id: bytes) -> None:
    event = artifact("a")
    batch = [Logged(Cursor(at), event) for at in (4, 5)]
    response = b'data: {"jsonrpc":"2.0","id":%b,"result":%b}\n\n' % (call_id, event.body)
    assert SseEncoder(EventEncoder("0.3"), call_id).frames(batch) == b"id: 4\n" + response + b"id: 5\n" + response
    assert SseEncoder(EventEncoder("0.3")).frames(batch[:1]) == b"id: 4\ndata: %b\n\n" % event.body
    named = SseEncoder(EventEncoder("0.1"), call_id, named=True).frames(batch[:1])
    assert named == b"id: 4\nevent: artifact\n" + SseEncoder(EventEncoder("0.1"), call_id).frames(batch[:1])[6:]
