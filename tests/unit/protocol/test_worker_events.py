"""Workers' events in 0.3 and in 1.0: their kinds, mending where that is safe, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from rolecall.model.a2a import EventKind, JsonObject, TaskState
from rolecall.protocol.dialects import worker_side
from rolecall.protocol.v0_3.shape import STATES as STATES_03
from rolecall.protocol.v1_0.shape import STATES as STATES_10
from rolecall.protocol.workers.events import Malformed

TEXT: dict[str, JsonObject] = {"0.3": {"kind": "text", "text": "x"}, "1.0": {"text": "x"}}
AGENT = {"0.3": "agent", "1.0": "ROLE_AGENT"}
WORKING = {"0.3": "working", "1.0": "TASK_STATE_WORKING"}
MEMBERS = {"task": "task", "status-update": "statusUpdate", "artifact-update": "artifactUpdate", "message": "message"}
LOG_DIALECTS = ["0.3", "1.0"]


def result_of(log_dialect: str, kind: str, **members: Any) -> JsonObject:
    """With the kind as that dialect writes it."""
    return {"kind": kind, **members} if log_dialect == "0.3" else {MEMBERS[kind]: members}


def read_in(log_dialect: str, kind: str, **members: Any) -> JsonObject:
    return worker_side(log_dialect).events.read_result(result_of(log_dialect, kind, **members)).document


def task(log_dialect: str, **members: Any) -> JsonObject:
    return {"id": "wt", "contextId": "wc", "status": {"state": WORKING[log_dialect]}, **members}


@pytest.mark.parametrize("log_dialect", LOG_DIALECTS)
def test_every_kind_is_recognised_with_its_ids(log_dialect: str) -> None:
    ids = {"taskId": "wt", "contextId": "wc"}
    documents = {
        EventKind.TASK: task(log_dialect),
        EventKind.STATUS: {**ids, "status": {"state": WORKING[log_dialect]}},
        EventKind.ARTIFACT: {**ids, "artifact": {"artifactId": "a", "parts": [TEXT[log_dialect]]}},
        EventKind.MESSAGE: {**ids, "messageId": "m", "role": AGENT[log_dialect], "parts": [TEXT[log_dialect]]},
    }
    for kind, members in documents.items():
        worker_event = worker_side(log_dialect).events.read_result(
            result_of(log_dialect, kind.value, **members), position="b.1"
        )
        assert (worker_event.kind, worker_event.dialect, worker_event.position) == (kind, log_dialect, "b.1")
        assert (worker_event.task, worker_event.context) == ("wt", "wc")
        assert worker_event.state == (TaskState.WORKING if kind in (EventKind.TASK, EventKind.STATUS) else None)
        assert worker_event.document.get("kind") == (kind.value if log_dialect == "0.3" else None)


@pytest.mark.parametrize(("log_dialect", "names"), [("0.3", STATES_03), ("1.0", STATES_10)])
def test_a_state_is_read_in_any_spelling_and_kept_in_the_specified_one(log_dialect: str, names: dict[str, TaskState]) -> None:
    for name, state in {**names, "dreaming": TaskState.UNKNOWN}.items():
        worker_event = worker_side(log_dialect).events.read_result(
            result_of(log_dialect, "task", **task(log_dialect, status={"state": name}))
        )
        assert worker_event.state is state
        kept = worker_event.document["status"]["state"]
        assert kept == state.value if log_dialect == "0.3" else kept.startswith("TASK_STATE_")


@pytest.mark.parametrize("log_dialect", LOG_DIALECTS)
@pytest.mark.parametrize("role", [None, "", "system", 1, [], {}, ["agent"]])
def test_a_message_without_a_role_is_the_agents_and_gets_an_id(log_dialect: str, role: object) -> None:
    message = read_in(log_dialect, "message", role=role, messageId=None, parts=[TEXT[log_dialect]])
    assert message["role"] == AGENT[log_dialect]
    assert isinstance(message["messageId"], str)


@pytest.mark.parametrize("log_dialect", LOG_DIALECTS)
def test_null_members_and_members_of_a_wrong_type_are_removed(log_dialect: str) -> None:
    wrong_types: dict[str, Any] = {"name": 5, "description": [], "extensions": "x", "metadata": None}
    artifact = {"artifactId": 7, "parts": [{**TEXT[log_dialect], "metadata": None}], **wrong_types}
    status = {"state": WORKING[log_dialect], "timestamp": 5, "message": None}
    document = read_in(
        log_dialect, "task", **task(log_dialect, status=status, history=None, artifacts=[artifact], metadata=None)
    )
    (kept,) = document["artifacts"]
    assert isinstance(kept["artifactId"], str)
    assert kept.keys() - {"artifactId", "parts"} == set()
    assert "metadata" not in kept["parts"][0]
    assert document["status"].keys() == {"state"}
    assert {"history", "metadata"}.isdisjoint(document)


@pytest.mark.parametrize("log_dialect", LOG_DIALECTS)
@pytest.mark.parametrize("wrong", [None, "yes", 1, [], {}, [1]])
def test_flags_and_references_of_a_wrong_type_are_removed(log_dialect: str, wrong: object) -> None:
    artifact = {"artifactId": "a", "parts": [TEXT[log_dialect]]}
    update = read_in(log_dialect, "artifact-update", taskId="wt", artifact=artifact, append=wrong, lastChunk=wrong)
    assert {"append", "lastChunk"}.isdisjoint(update)
    message = read_in(log_dialect, "message", parts=[TEXT[log_dialect]], referenceTaskIds=wrong)
    assert message.get("referenceTaskIds", []) == []


@pytest.mark.parametrize("log_dialect", LOG_DIALECTS)
def test_unknown_members_are_kept(log_dialect: str) -> None:
    part = {**TEXT[log_dialect], "strange": {"kind": [1, 2.5, None]}}
    document = read_in(log_dialect, "artifact-update", taskId="wt", artifact={"artifactId": "a", "parts": [part]}, odd=1)
    assert document["artifact"]["parts"][0]["strange"] == {"kind": [1, 2.5, None]}
    assert document["odd"] == 1


def test_an_empty_list_may_be_left_out_in_1_0_and_not_in_0_3() -> None:
    assert read_in("1.0", "artifact-update", taskId="wt", artifact={"artifactId": "a"})["artifact"]["parts"] == [{"text": ""}]
    assert read_in("1.0", "message", messageId="m", role="ROLE_AGENT")["parts"] == [{"text": ""}]
    with pytest.raises(Malformed, match=r"artifact\.parts is not a list"):
        read_in("0.3", "artifact-update", taskId="wt", artifact={"artifactId": "a"})


@pytest.mark.parametrize(("log_dialect", "empty"), [("0.3", {"kind": "text", "text": ""}), ("1.0", {"text": ""})])
def test_what_has_no_parts_gets_one_that_is_empty(log_dialect: str, empty: JsonObject) -> None:
    bare: JsonObject = {"artifactId": "a", "parts": []}
    assert read_in(log_dialect, "artifact-update", taskId="wt", artifact={**bare})["artifact"]["parts"] == [empty]
    status = {"state": "working", "message": {"parts": []}}
    document = read_in(log_dialect, "task", id="wt", status=status, artifacts=[{**bare}])
    assert document["artifacts"][0]["parts"] == document["status"]["message"]["parts"] == [empty]


@pytest.mark.parametrize("log_dialect", LOG_DIALECTS)
@pytest.mark.parametrize(
    ("kind", "members", "why"),
    [
        ("task", {"id": None}, "a task without id"),
        ("task", {"id": ""}, "a task without id"),
        ("task", {"id": "x" * 1025}, "a task without id"),
        ("task", {"status": None}, "no status object"),
        ("task", {"status": {}}, "no status.state"),
        ("task", {"status": {"state": 5}}, "no status.state"),
        ("task", {"history": {}}, "task.history is not a list"),
        ("task", {"history": [5]}, "task.history is not an object"),
        ("task", {"artifacts": "x"}, "task.artifacts is not a list"),
        ("task", {"artifacts": [None]}, "no artifact object"),
        ("task", {"artifacts": [{"parts": 5}]}, "artifact.parts is not a list"),
        ("task", {"artifacts": [{"parts": [5]}]}, "artifact.parts holds something that is not an object"),
        ("task", {"metadata": []}, "metadata is not an object"),
        ("task", {"contextId": 5}, "contextId is not a string of at most 1024 characters"),
        ("status-update", {"status": {"state": "working", "message": []}}, "status.message is not an object"),
        ("artifact-update", {"artifact": None}, "no artifact object"),
        ("message", {"parts": "x"}, "message.parts is not a list"),
        ("message", {"parts": [], "taskId": {}}, "taskId is not a string of at most 1024 characters"),
    ],
)
def test_a_wrong_member_that_readers_rely_on_is_malformed(
    log_dialect: str, kind: str, members: dict[str, Any], why: str
) -> None:
    whole = {**task(log_dialect), **members} if kind == "task" else members
    with pytest.raises(Malformed) as refusal:
        read_in(log_dialect, kind, **whole)
    assert str(refusal.value) == why


@pytest.mark.parametrize("log_dialect", LOG_DIALECTS)
@pytest.mark.parametrize("metadata", ["x", 5, [], True])
def test_a_parts_metadata_is_an_object_or_malformed(log_dialect: str, metadata: object) -> None:
    data = {"kind": "data", "data": 1} if log_dialect == "0.3" else {"data": 1}
    with pytest.raises(Malformed, match="metadata is not an object"):
        read_in(log_dialect, "message", parts=[{**data, "metadata": metadata}])


def test_a_0_3_part_whose_data_is_not_an_object_is_wrapped_and_marked() -> None:
    (part,) = read_in("0.3", "message", parts=[{"kind": "data", "data": [1], "metadata": {"a": 1}}])["parts"]
    assert part == {"kind": "data", "data": {"value": [1]}, "metadata": {"a": 1, "data_part_compat": True}}


@pytest.mark.parametrize("part", [{}, {"text": None}, {"text": "x", "url": "u"}, {"kind": "text"}, {"file": {}}])
def test_a_part_of_1_0_has_exactly_one_content(part: JsonObject) -> None:
    with pytest.raises(Malformed, match="a part without exactly one content"):
        read_in("1.0", "message", parts=[part])


def test_null_is_content_for_data_alone() -> None:
    assert read_in("1.0", "message", parts=[{"data": None}, {"data": None, "text": None}])["parts"][0] == {"data": None}


@pytest.mark.parametrize(
    "result",
    [
        {"task": task("1.0"), "message": {"parts": []}},
        {"task": []},
        {"statusUpdate": "x"},
        {"kind": "status-update", "status": {"state": "TASK_STATE_WORKING"}},
        {"artifact": {"parts": []}},
    ],
)
def test_a_result_of_1_0_has_exactly_one_of_its_four_members(result: JsonObject) -> None:
    with pytest.raises(Malformed, match="not one of task, message, statusUpdate, artifactUpdate"):
        worker_side("1.0").events.read_result(result)


def test_a_1_0_task_is_understood_bare_and_wrapped() -> None:
    for result in (task("1.0"), {"task": task("1.0")}):
        for read in (worker_side("1.0").events.read_result, worker_side("1.0").events.read_task):
            worker_event = read({**result})
            assert (worker_event.kind, worker_event.task) == (EventKind.TASK, "wt")


def test_0_3_events_without_a_kind_are_recognised_by_their_members() -> None:
    for document, kind in (
        ({"id": "wt", "status": {"state": "pending"}}, EventKind.TASK),
        ({"taskId": "wt", "status": {"state": "running"}}, EventKind.STATUS),
        ({"taskId": "wt", "artifact": {"parts": []}}, EventKind.ARTIFACT),
        ({"role": "agent", "parts": [{"type": "text", "text": "x"}, {"text": "y"}]}, EventKind.MESSAGE),
    ):
        worker_event = worker_side("0.3").events.read_result(document)
        assert worker_event.kind is kind
        assert worker_event.document["kind"] == kind.value
