"""Requests in 0.3: lenient in, strict out."""

from __future__ import annotations

from typing import Any

import pytest

from hub.errors import InvalidParams
from hub.model.a2a import Ids
from hub.model.command import Target
from hub.model.ids import TaskId
from hub.wire import calls
from hub.wire.asked import read_task_id
from hub.wire.v03 import requests as v03
from hub.wire.v03.heard import read_result

ANY = Target()


def message(**members: Any) -> dict[str, Any]:
    return {
        "message": {"kind": "message", "messageId": "m1", "role": "user", "parts": [{"kind": "text", "text": "hi"}], **members}
    }


def test_a_careless_message_is_mended() -> None:
    send = v03.read_send(
        {"message": {"parts": [{"type": "text", "text": "a"}, {"text": "b"}, {"type": "text", "content": "c"}]}}, ANY
    )
    said = send.params["message"]
    assert said["kind"] == "message"
    assert said["role"] == "user"
    assert said["messageId"] == send.message_id != ""
    assert [part["kind"] for part in said["parts"]] == ["text"] * 3
    assert [part["text"] for part in said["parts"]] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"message": None},
        {"message": []},
        message(parts=[]),
        message(parts=None),
        message(parts=["x"]),
        message(parts=[{"kind": "text", "text": 5}]),
        message(parts=[{"kind": "song", "text": "la"}]),
        message(parts=[{"kind": "data", "data": [1]}]),
        message(role="system"),
        message(messageId=5),
        message(messageId=""),
        message(taskId=5),
        message(contextId="x" * 300),
        message(referenceTaskIds="x"),
        message(metadata=[]),
        {**message(), "metadata": "x"},
        {**message(), "configuration": []},
        {**message(), "configuration": {"blocking": "yes"}},
        {**message(), "configuration": {"historyLength": -1}},
        {**message(), "configuration": {"historyLength": True}},
        {**message(), "metadata": {"role": 5}},
        {**message(), "metadata": {"skill": []}},
        {**message(), "metadata": {"waitSeconds": "5"}},
        {**message(), "metadata": {"waitSeconds": 1e6}},
    ],
)
def test_a_wrong_message_is_invalid_params(params: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams):
        v03.read_send(params, ANY)


def test_a_role_is_named_in_either_metadata_and_params_come_after_the_message() -> None:
    send = v03.read_send({**message(metadata={"role": "a:x:y"}), "metadata": {"role": "b", "skillId": "s"}}, ANY)
    assert (send.target.role, send.target.instance, send.target.skill) == ("a", "x:y", "s")


@pytest.mark.parametrize(
    "params", [{"id": "t"}, {"taskId": "t"}, {"task_id": "t"}, {"name": "tasks/t"}, {"id": "t", "taskId": "t"}]
)
def test_a_task_is_named_in_any_spelling(params: dict[str, Any]) -> None:
    assert read_task_id(params) == "t"


@pytest.mark.parametrize("params", [{}, {"id": ""}, {"id": 5}, {"id": "a", "taskId": "b"}, {"id": "x" * 300}, {"name": "t"}])
def test_a_task_that_is_not_named_clearly_is_invalid_params(params: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams):
        read_task_id(params)


def test_a_worker_is_told_its_own_ids_and_every_member_it_may_know() -> None:
    params = {
        **message(taskId="hub-task", contextId="hub-ctx", referenceTaskIds=["hub-ref"], strange=1),
        "other": {"kind": "x"},
    }
    send = v03.read_send(params, ANY)
    ids = Ids(TaskId("hub-task"), "hub-ctx", "their-task", "their-ctx")
    told = calls.send_params(send, ids, {"hub-ref": "their-ref"}, stream=True)
    said = told["message"]
    assert (said["taskId"], said["contextId"], said["referenceTaskIds"]) == ("their-task", "their-ctx", ["their-ref"])
    assert said["messageId"] == "m1"
    assert said["strange"] == 1
    assert told["other"] == {"kind": "x"}


def test_a_first_message_carries_no_task_id_to_the_worker() -> None:
    send = v03.read_send(message(contextId="c"), ANY)
    told = calls.send_params(send, Ids(TaskId("t"), "c"), {}, stream=False)
    assert "taskId" not in told["message"]
    assert told["message"]["contextId"] == "c"
    assert told["configuration"] == {"blocking": False}


@pytest.mark.parametrize("metadata", [None, {"a": 1, "usage": "mine"}])
def test_what_a_task_says_beside_a2a_is_found_in_its_metadata(metadata: dict[str, Any] | None) -> None:
    task = {"kind": "task", "id": "t", "status": {"state": "completed"}, "data": {"usage": 7}, "metadata": metadata}
    document = read_result(task).document
    assert document["metadata"] == {"usage": 7, **(metadata or {})}
    assert "data" not in document


def test_a_member_data_that_is_no_object_stays_where_it_was() -> None:
    task = {"kind": "task", "id": "t", "status": {"state": "completed"}, "data": [1]}
    assert read_result(task).document["data"] == [1]
