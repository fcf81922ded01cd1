"""Documents in 0.1: what callers get, and what they may send."""

from __future__ import annotations

from typing import Any

import pytest

from rolecall.model.a2a import EventKind, TaskState
from rolecall.model.content import Artifact, ArtifactUpdate, Content, Message, Part, PartKind, Role, Status, StatusUpdate, Task
from rolecall.protocol.untranslatable import Untranslatable
from rolecall.protocol.v0_1 import shape as v01

TEXT = Part(PartKind.TEXT, "hi")
MESSAGE = Message("m1", Role.AGENT, (TEXT,), "t1", "c1", ("t0",), ("urn:x",), {"a": 1})
WORKS = (Artifact("first", (TEXT,), "A", "the first"), Artifact("second", (TEXT,), metadata={"b": 2}))
TASK = Task("t1", "c1", Status(TaskState.WORKING, MESSAGE, "2025-10-28T10:00:00Z"), (MESSAGE,), WORKS, {"kind": "mine"})
OLD_MESSAGE = {"role": "agent", "parts": [{"type": "text", "text": "hi"}], "metadata": {"a": 1}}
OLD_STATUS = {"state": "working", "message": OLD_MESSAGE, "timestamp": "2025-10-28T10:00:00Z"}
OLD_WORKS = [
    {"name": "A", "description": "the first", "parts": [{"type": "text", "text": "hi"}], "index": 0},
    {"parts": [{"type": "text", "text": "hi"}], "index": 1, "metadata": {"b": 2}},
]


def test_a_task_has_a_session_and_its_artifacts_have_indexes() -> None:
    assert v01.write(TASK) == {
        "id": "t1",
        "sessionId": "c1",
        "status": OLD_STATUS,
        "history": [OLD_MESSAGE],
        "artifacts": OLD_WORKS,
        "metadata": {"kind": "mine"},
    }


def test_a_task_in_a_stream_is_a_status_with_artifacts() -> None:
    frame = v01.write_stream(TASK)
    assert frame == {
        "id": "t1",
        "status": OLD_STATUS,
        "final": False,
        "artifacts": OLD_WORKS,
        "metadata": {"kind": "mine"},
    }
    assert "artifacts" not in v01.write_stream(Task("t1", "c1", Status(TaskState.SUBMITTED)))


def test_a_stream_cannot_hold_a_bare_message() -> None:
    with pytest.raises(Untranslatable):
        v01.write_stream(MESSAGE)


@pytest.mark.parametrize(("state", "final"), [("working", False), ("input-required", True), ("canceled", True)])
def test_a_status_is_final_if_no_event_follows(state: str, final: bool) -> None:
    update = StatusUpdate("t1", "c1", Status(TaskState(state)), {"a": 1})
    assert v01.write(update) == v01.write_stream(update)
    assert v01.write(update) == {"id": "t1", "status": {"state": state}, "final": final, "metadata": {"a": 1}}


@pytest.mark.parametrize(("state", "name"), [("rejected", "failed"), ("auth-required", "input-required")])
def test_a_state_that_0_1_lacks_becomes_the_nearest_one(state: str, name: str) -> None:
    assert v01.state_name(TaskState(state)) == name


def test_a_chunk_has_the_index_of_its_artifact_and_marks_the_last_one() -> None:
    update = ArtifactUpdate("t1", "c1", WORKS[0], append=True, last_chunk=False)
    artifact = {**OLD_WORKS[0], "index": 3, "append": True, "lastChunk": False}
    assert v01.write(update, index=3) == v01.write_stream(update, index=3) == {"id": "t1", "artifact": artifact}


def test_chunks_with_one_index_are_read_as_one_artifact() -> None:
    def read(**members: Any) -> Content:
        return v01.read(EventKind.ARTIFACT, {"id": "t1", "artifact": {"parts": [], **members}})

    assert read(index=2, append=True) == ArtifactUpdate("t1", "", Artifact("2", ()), append=True)
    assert read(index=2, lastChunk=True) == ArtifactUpdate("t1", "", Artifact("2", ()), last_chunk=True)
    assert read(append=None) == ArtifactUpdate("t1", "", Artifact("0", ()))
    assert read(artifactId="named") == ArtifactUpdate("t1", "", Artifact("named", ()))


def test_artifacts_without_an_index_get_their_position() -> None:
    task = v01.read(EventKind.TASK, {"id": "t1", "status": {"state": "working"}, "artifacts": [{"parts": []}, {"parts": []}]})
    assert isinstance(task, Task)
    assert [artifact.artifact_id for artifact in task.artifacts] == ["0", "1"]


@pytest.mark.parametrize("index", [-1, True, "0", 1.0, 10**9])
def test_a_wrong_index_is_refused(index: Any) -> None:
    with pytest.raises(Untranslatable, match=r'^"artifact\.index" '):
        v01.read(EventKind.ARTIFACT, {"id": "t1", "artifact": {"index": index, "parts": []}})


def test_a_message_gets_no_id_but_keeps_the_one_it_has() -> None:
    assert v01.read_message(OLD_MESSAGE) == Message("", Role.AGENT, (TEXT,), metadata={"a": 1})
    assert v01.read_message({**OLD_MESSAGE, "messageId": "m9"}).message_id == "m9"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "text", "text": "hi"}, TEXT),
        ({"type": "text", "content": "hi"}, TEXT),
        ({"type": "data", "data": {"type": "x"}}, Part(PartKind.DATA, {"type": "x"})),
        ({"type": "data", "content": {"a": 1}}, Part(PartKind.DATA, {"a": 1})),
        ({"type": "file", "file": {"name": "x", "mimeType": "a/b", "bytes": "QQ=="}}, Part(PartKind.RAW, "QQ==", "x", "a/b")),
        ({"type": "file", "content": {"uri": "https://example.org"}}, Part(PartKind.URL, "https://example.org")),
    ],
)
def test_every_form_of_part_in_use_is_understood(part: dict[str, Any], expected: Part) -> None:
    assert v01.read_message({"role": "user", "parts": [part]}).parts == (expected,)


def test_a_file_that_is_a_bare_text_is_ambiguous_and_refused() -> None:
    with pytest.raises(Untranslatable):
        v01.read_message({"role": "user", "parts": [{"type": "file", "content": "QQ=="}]})
