"""Requests in 0.1: the caller makes the task's id, and does not wait."""

from __future__ import annotations

from typing import Any

import pytest

from rolecall.errors import InvalidParams
from rolecall.model.a2a import Ids
from rolecall.model.command import Target
from rolecall.model.ids import TaskId
from rolecall.model.push import PushConfig
from rolecall.protocol.v0_1 import requests as v01
from rolecall.protocol.workers import requests as calls

ANY = Target()


def params(message: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    full = {"role": "user", "parts": [{"type": "text", "text": "hi"}], **(message or {})}
    return {"id": "task-1", "sessionId": "session-1", "message": full, **members}


def test_every_member_of_a_message_is_read() -> None:
    send = v01.read_send(
        params(
            {"metadata": {"role": "echo:a"}},
            historyLength=0,
            pushNotification={"url": "https://example.org/", "token": "t", "authentication": {"schemes": ["Bearer"]}},
            metadata={"skill": "s", "waitSeconds": 1},
        ),
        ANY,
        trace="tr",
        key="k",
        extensions=("e",),
    )
    assert (send.alias, send.context_id, send.task_id) == ("task-1", "session-1", None)
    assert send.target == Target(role="echo", instance="a", skill="s")
    assert (send.blocking, send.history_length, send.wait) == (False, 0, 1.0)
    assert send.push == PushConfig(TaskId(""), "", "https://example.org/", "0.1", "t", ("Bearer",))
    assert "pushNotification" not in send.params  # they are stored, and it has secrets
    assert (send.dialect, send.trace, send.key, send.extensions) == ("0.1", "tr", "k", ("e",))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"message": None}, '"params.message" must be an object.'),
        (params(id=5), '"params.id" must be a string of 1 to 256 characters.'),
        (params(id=""), '"params.id" must be a string of 1 to 256 characters.'),
        (params(id="x" * 257), '"params.id" must be a string of 1 to 256 characters.'),
        (params(sessionId=[]), '"params.sessionId" must be a string of 1 to 256 characters.'),
        (params({"parts": []}), '"message.parts" must be a list with at least one part.'),
        (params({"parts": [5]}), '"message.parts[0]" must be an object.'),
        (params({"parts": [{"type": "xyz"}]}), '"message.parts[0]" must be a text, file or data part.'),
        (params({"parts": [{"type": "text", "text": 5}]}), '"message.parts[0].text" must be a string.'),
        (params({"parts": [{"type": "file", "file": {}}]}), '"message.parts[0].file" must have either bytes or uri.'),
        (params({"parts": [{"type": "data", "data": []}]}), '"message.parts[0].data" must be an object.'),
        (params({"role": "system"}), '"message.role" must be "user" or "agent".'),
        (params({"role": None}), '"message.role" must be "user" or "agent".'),
        (params({"metadata": 5}), '"message.metadata" must be an object.'),
        (params({"messageId": 5}), '"message.messageId" must be a string of at most 256 characters.'),
        (params(metadata=5), '"metadata" must be an object.'),
        (params(historyLength=-1), '"historyLength" must be a whole number, 0 or more.'),
        (params(pushNotification=5), '"params.pushNotification" must be an object.'),
        (params(pushNotification={"url": 5}), '"pushNotificationConfig.url" must be a URL of at most 2048 characters.'),
    ],
)
def test_a_wrong_message_is_refused_with_the_path_of_the_member(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidParams) as refusal:
        v01.read_send(wrong, ANY)
    assert refusal.value.message == text


def test_without_an_id_the_task_has_no_alias() -> None:
    first, second = (v01.read_send({"message": params()["message"]}, ANY) for _ in range(2))
    assert (first.alias, first.context_id) == ("", None)
    assert first.params != second.params, "nothing shows that the two are the same"


def test_a_message_without_an_id_is_sent_with_the_same_id_to_every_worker() -> None:
    """Its content identifies it, so nothing may be added to it."""
    given = params()
    send = v01.read_send(params(), ANY)
    assert send.params == given
    for log_dialect in ("0.3", "1.0"):
        sent = calls.send_params(send, Ids(TaskId("T"), "c", log_dialect=log_dialect), {}, stream=True)
        assert sent["message"]["messageId"] == send.message_id


def test_push_is_set_and_read_by_the_tasks_id_alone() -> None:
    given = {"id": "task-1", "pushNotificationConfig": {"url": "https://example.org/", "token": "t"}}
    assert v01.read_set_push(given, ANY).config == PushConfig(TaskId("task-1"), "", "https://example.org/", "0.1", "t")
    named = v01.read_name_push({"id": "task-1"}, ANY)
    assert (named.task_id, named.id) == ("task-1", None)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"id": "t"}, '"params.pushNotificationConfig" must be an object with a url.'),
        ({"id": "t", "pushNotificationConfig": "x"}, '"params.pushNotificationConfig" must be an object.'),
        ({"pushNotificationConfig": {"url": "u"}}, '"params.id" must name a task.'),
    ],
)
def test_a_config_that_is_none_is_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidParams) as refusal:
        v01.read_set_push(given, ANY)
    assert refusal.value.message == text
