"""Unusual spellings, and how each dialect reads them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from rolecall.model.a2a import PAUSED, TERMINAL, EventKind, TaskState
from rolecall.model.content import ArtifactUpdate, Content, Message, Part, PartKind, Role, Status, StatusUpdate, Task
from rolecall.protocol.text.members import moment
from rolecall.protocol.untranslatable import Untranslatable
from rolecall.protocol.v0_3 import parts as v03_parts
from rolecall.protocol.v0_3 import shape as v03
from rolecall.protocol.v1_0 import shape as v10


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2025-10-28T10:00:00Z", "2025-10-28T10:00:00Z"),
        ("2025-10-28T12:30:00.250+02:30", "2025-10-28T10:00:00.250Z"),
        ("2025-12-31T23:30:00-01:00", "2026-01-01T00:30:00Z"),
        ("2025-10-28T10:00:00", "2025-10-28T10:00:00Z"),
        ("2025-10-28 10:00:00.123456 +0000", "2025-10-28T10:00:00.123456Z"),
        ("2025-10-28t10:00z", "2025-10-28T10:00:00Z"),
        ("2025-10-28T10:00:00.1234567891234Z", "2025-10-28T10:00:00.123456789Z"),
        ("0001-01-01T00:00:00+01:00", None),
        ("9999-12-31T23:59:59-01:00", None),
        ("2025-02-30T00:00:00Z", None),
        ("٢٠٢٥-10-28T10:00:00Z", None),
        ("yesterday", None),
        ("", None),
        (1761645600, None),
        (None, None),
    ],
)
def test_a_time_is_written_in_utc_or_left_out(given: Any, expected: str | None) -> None:
    assert moment(given) == expected
    status = {"state": "working", "timestamp": given}
    update = v03.read(EventKind.STATUS, {"taskId": "t", "contextId": "c", "status": status})
    assert v10.write(update)["status"].get("timestamp") == expected


@pytest.mark.parametrize("state", TaskState)
def test_a_state_has_one_name_in_each_dialect_and_final_marks_pauses_and_ends(state: TaskState) -> None:
    assert v03.read_state(v03.state_name(state)) is v10.read_state(v10.state_name(state)) is state
    update = StatusUpdate("t", "c", Status(state))
    assert v03.write(update)["final"] is (state in TERMINAL or state in PAUSED)
    assert "final" not in v10.write(update)


def test_the_states_of_1_0_have_the_numbers_of_its_schema() -> None:
    names = ["UNSPECIFIED", "SUBMITTED", "WORKING", "COMPLETED", "FAILED", "CANCELED"]
    names += ["INPUT_REQUIRED", "REJECTED", "AUTH_REQUIRED"]
    assert [v10.state_name(v10.read_state(number)) for number in range(9)] == [f"TASK_STATE_{name}" for name in names]


@pytest.mark.parametrize(
    ("shape", "given", "expected"),
    [
        (v03, "cancelled", TaskState.CANCELED),
        (v03, "pending", TaskState.SUBMITTED),
        (v03, "running", TaskState.WORKING),
        (v03, "dreaming", TaskState.UNKNOWN),
        (v10, "TASK_STATE_CANCELLED", TaskState.CANCELED),
        (v10, "input-required", TaskState.INPUT_REQUIRED),
        (v10, "TASK_STATE_DREAMING", TaskState.UNKNOWN),
        (v10, 99, TaskState.UNKNOWN),
        (v10, -1, TaskState.UNKNOWN),
        (v10, None, TaskState.UNKNOWN),
    ],
)
def test_other_spellings_of_states_are_understood_and_unknown_ones_stay_unknown(
    shape: ModuleType, given: Any, expected: TaskState
) -> None:
    assert shape.read_state(given) is expected


@pytest.mark.parametrize(
    "document",
    [
        {
            "message_id": "m",
            "context_id": "c",
            "task_id": "t",
            "role": 1,
            "reference_task_ids": ["r"],
            "parts": [{"text": "x"}],
        },
        {
            "messageId": "m",
            "contextId": "c",
            "taskId": "t",
            "role": "ROLE_USER",
            "referenceTaskIds": ["r"],
            "parts": [{"text": "x"}],
        },
        {"messageId": "m", "message_id": None, "contextId": "c", "taskId": "t", "role": "user", "referenceTaskIds": ["r"]}
        | {"parts": [{"text": "x", "raw": None, "url": None, "metadata": None, "filename": "", "media_type": ""}]},
    ],
)
def test_1_0_reads_names_and_enums_as_every_protojson_reader_must(document: dict[str, Any]) -> None:
    expected = Message("m", Role.USER, (Part(PartKind.TEXT, "x"),), "t", "c", ("r",))
    assert v10.read_message(document) == expected


def test_1_0_reads_the_snake_case_names_of_updates_and_parts() -> None:
    part = {"url": "https://example.org/x", "media_type": "image/png"}
    document = {"task_id": "t", "context_id": "c", "last_chunk": True, "artifact": {"artifact_id": "a", "parts": [part]}}
    update = v10.read(EventKind.ARTIFACT, document)
    assert isinstance(update, ArtifactUpdate)
    assert (update.task_id, update.context_id, update.artifact.artifact_id, update.last_chunk) == ("t", "c", "a", True)
    assert update.artifact.parts == (Part(PartKind.URL, "https://example.org/x", None, "image/png"),)


def test_a_context_that_1_0_leaves_out_is_empty() -> None:
    task = v10.read(EventKind.TASK, {"id": "t", "status": {}})
    assert task == Task("t", "", Status(TaskState.UNKNOWN))
    assert "contextId" not in v10.write(task)
    assert v03.write(task)["contextId"] == ""


def test_null_is_the_same_as_absent_in_0_3() -> None:
    nothing = dict.fromkeys(("metadata", "history", "artifacts"))
    document = {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "working", "message": None}, **nothing}
    assert v03.write(v03.read(EventKind.TASK, document)) == {
        "kind": "task",
        "id": "t",
        "contextId": "c",
        "status": {"state": "working"},
    }


@pytest.mark.parametrize(
    "part",
    [
        {"kind": "text", "text": "x"},
        {"type": "text", "text": "x"},
        {"text": "x"},
        {"type": "text", "content": "x"},
        {"kind": "text", "text": None, "content": "x", "data": {}},
    ],
)
def test_a_text_part_is_understood_however_0_3_callers_spell_it(part: dict[str, Any]) -> None:
    assert v03_parts.read_part(part) == Part(PartKind.TEXT, "x")


@pytest.mark.parametrize("given", ["-_-_", "-_-_====", "+/+/", "+/\r\n+/"])
def test_bytes_are_written_in_the_standard_alphabet_with_padding(given: str) -> None:
    assert v10.read_part({"raw": given}) == v03_parts.read_part({"kind": "file", "file": {"bytes": given}})
    assert v10.write_part(v10.read_part({"raw": given})) == {"raw": "+/+/"}
    assert v10.write_part(v10.read_part({"raw": "QQ"})) == {"raw": "QQ=="}


def message(**members: Any) -> dict[str, Any]:
    return {"messageId": "m", "role": "agent", "parts": [], **members}


def task(**members: Any) -> dict[str, Any]:
    return {"id": "t", "contextId": "c", "status": {"state": "working"}, **members}


@pytest.mark.parametrize(
    ("shape", "kind", "document", "place"),
    [
        (v10, EventKind.MESSAGE, message(parts=[{"text": "a"}, {"text": "secret", "url": "secret"}]), "message.parts[1]"),
        (v10, EventKind.MESSAGE, message(parts=[{"text": "secret", "data": None}]), "message.parts[0]"),
        (v10, EventKind.MESSAGE, message(parts=[{"filename": "secret"}]), "message.parts[0]"),
        (v10, EventKind.MESSAGE, message(parts=[{"raw": "secret!"}]), "message.parts[0].raw"),
        (v10, EventKind.MESSAGE, message(message_id="secret"), "message"),
        (v10, EventKind.MESSAGE, message(role=0), "message.role"),
        (v10, EventKind.MESSAGE, message(role=True), "message.role"),
        (v10, EventKind.TASK, task(history=[message(), message(parts="secret")]), "task.history[1].parts"),
        (v10, EventKind.ARTIFACT, {"artifact": {"parts": [None]}}, "artifact.parts[0]"),
        (v03, EventKind.MESSAGE, message(role="secret"), "message.role"),
        (v03, EventKind.MESSAGE, message(parts=None), "message.parts"),
        (
            v03,
            EventKind.MESSAGE,
            message(parts=[{"kind": "file", "file": {"uri": "s", "bytes": "s"}}]),
            "message.parts[0].file",
        ),
        (v03, EventKind.MESSAGE, message(parts=[{"kind": "file", "file": {"name": "secret"}}]), "message.parts[0].file"),
        (v03, EventKind.MESSAGE, message(parts=[{"kind": "file", "file": {"bytes": "A"}}]), "message.parts[0].file.bytes"),
        (v03, EventKind.MESSAGE, message(parts=[{"kind": "data", "data": ["secret"]}]), "message.parts[0].data"),
        (v03, EventKind.MESSAGE, message(parts=[{"kind": "image", "text": "secret"}]), "message.parts[0]"),
        (v03, EventKind.MESSAGE, message(parts=[{"text": "secret", "data": {}}]), "message.parts[0]"),
        (v03, EventKind.TASK, task(metadata="secret"), "task.metadata"),
        (v03, EventKind.TASK, task(artifacts=[{"artifactId": "a", "parts": [], "name": 7}]), "task.artifacts[0].name"),
        (v03, EventKind.TASK, task(status={"state": "working", "message": message(taskId=7)}), "task.status.message.taskId"),
        (v03, EventKind.STATUS, {"taskId": "t", "status": {"state": None}}, "status.state"),
    ],
)
def test_a_wrong_member_is_refused_with_its_path_and_not_quoted(
    shape: ModuleType, kind: EventKind, document: dict[str, Any], place: str
) -> None:
    with pytest.raises(Untranslatable) as refusal:
        shape.read(kind, document)
    assert str(refusal.value).startswith(f'"{place}" ')
    assert "secret" not in str(refusal.value)


def test_members_that_resemble_a2a_inside_metadata_and_data_do_not_change() -> None:
    loaded: dict[str, Any] = {"kind": "text", "final": True, "role": "ROLE_USER", "parts": [{"kind": "x"}], "message_id": None}
    content: Content = Message("m", Role.AGENT, (Part(PartKind.DATA, loaded, metadata=loaded),), metadata=loaded)
    for shape in (v03, v10):
        document = shape.write(content)
        assert document["metadata"] == document["parts"][0]["metadata"] == document["parts"][0]["data"] == loaded
        assert shape.read_message(document) == content
