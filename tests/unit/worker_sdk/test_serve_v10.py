"""A worker of the SDK, called in 1.0."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from tests.unit.worker_sdk.serving import Caller, served
from worker_sdk import Message, NeedInput, Worker


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    worker = Worker("w", concurrency=3)

    @worker.on_message
    async def handler(text: str) -> AsyncGenerator[Any, Message]:
        """Returns the text, or asks."""
        if text == "ask":
            reply = yield NeedInput("what?")
            yield reply.text
        else:
            yield text

    async with served(worker) as client:
        yield client


def message_params(text: str, **members: Any) -> dict[str, Any]:
    return {"message": {"role": "ROLE_USER", "parts": [{"text": text}], **members}}


async def test_a_send_result_is_wrapped_and_a_get_result_is_not(caller: Caller) -> None:
    answer = await caller.result("SendMessage", message_params("hi"))
    task = answer["task"]
    assert (list(answer), task["status"]["state"]) == (["task"], "TASK_STATE_COMPLETED")
    assert task["artifacts"][0]["parts"] == [{"text": "hi"}]
    assert task["history"][0]["role"] == "ROLE_USER"
    assert await caller.result("GetTask", {"id": task["id"]}) == task


async def test_a_stream_starts_with_the_task_and_each_frame_has_its_kind(caller: Caller) -> None:
    events = await caller.events("SendStreamingMessage", message_params("hi"))
    assert [list(event) for _, event in events] == [["task"], ["artifactUpdate"], ["artifactUpdate"], ["statusUpdate"]]
    assert "final" not in events[-1][1]["statusUpdate"]
    assert all(position for position, _ in events)


async def test_a_question_can_be_answered_in_the_other_dialect(caller: Caller) -> None:
    task = (await caller.result("SendMessage", message_params("ask")))["task"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    part = {"kind": "text", "text": "this"}
    answer = await caller.result("message/send", {"message": {"parts": [part], "taskId": task["id"]}})
    assert (answer["kind"], answer["artifacts"][0]["parts"]) == ("task", [part])


async def test_an_ended_task_can_only_be_resumed(caller: Caller) -> None:
    events = await caller.events("SendStreamingMessage", message_params("hi"))
    task = events[0][1]["task"]["id"]
    response = await caller.call("SubscribeToTask", {"id": task})
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert response.json()["error"]["code"] == -32004
    assert response.json()["error"]["data"][0]["reason"] == "UNSUPPORTED_OPERATION"
    assert await caller.events("SubscribeToTask", {"id": task}, after=events[1][0]) == events[2:]
    ((_, whole),) = await caller.events("tasks/resubscribe", {"id": task})
    assert whole["status"]["state"] == "completed"


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("GetTask", {"id": "none"}, -32001),
        ("CancelTask", {"id": "none"}, -32001),
        ("GetTask", {"id": "none", "historyLength": -1}, -32602),
        ("SendMessage", {"message": {"parts": [{"kind": "text", "text": "hi"}, {"raw": 5}]}}, -32602),
        ("ListTasks", {}, -32601),
        ("CreateTaskPushNotificationConfig", {"taskId": "t"}, -32003),
        ("GetExtendedAgentCard", {}, -32004),
        ("tasks/send", {"id": "t"}, -32601),
    ],
)
async def test_an_error_has_the_code_that_1_0_gives_it(caller: Caller, method: str, params: dict[str, Any], code: int) -> None:
    assert await caller.code(method, params) == code


async def test_an_unknown_version_is_refused(caller: Caller) -> None:
    response = await caller.call("GetTask", {"id": "t"}, **{"a2a-version": "2.0"})
    assert response.json()["error"]["code"] == -32009
