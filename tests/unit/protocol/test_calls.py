"""Calls to workers: the caller's message with the worker's ids, in the worker's dialect."""

from __future__ import annotations

from typing import Any

import pytest

from rolecall.model.a2a import Ids, JsonObject
from rolecall.model.command import Send, Target
from rolecall.model.ids import TaskId
from rolecall.protocol.dialects import DIALECTS
from rolecall.protocol.workers import requests as calls

ANY = Target()
FIRST = {log_dialect: Ids(TaskId("T"), "c", log_dialect=log_dialect) for log_dialect in ("0.3", "1.0")}
LATER = {log_dialect: Ids(TaskId("T"), "C", "wt", "wc", log_dialect) for log_dialect in ("0.3", "1.0")}
METADATA = {"role": "echo", "kind": "mine"}
HOOK = {"url": "https://example.org/"}
ASKED: dict[str, JsonObject] = {
    "0.1": {
        "id": "mine",
        "sessionId": "c",
        "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}], "metadata": {"final": 1}},
        "acceptedOutputModes": ["text/plain"],
        "historyLength": 1,
        "pushNotification": HOOK,
        "metadata": METADATA,
        "odd": 1,
    },
    "0.3": {
        "message": {
            "kind": "message",
            "messageId": "m",
            "role": "user",
            "parts": [{"kind": "text", "text": "hi"}],
            "contextId": "c",
            "metadata": {"final": 1},
            "strange": 1,
        },
        "configuration": {
            "acceptedOutputModes": ["text/plain"],
            "blocking": True,
            "historyLength": 1,
            "pushNotificationConfig": HOOK,
        },
        "metadata": METADATA,
        "odd": 1,
    },
    "1.0": {
        "tenant": "echo",
        "message": {
            "messageId": "m",
            "role": "ROLE_USER",
            "parts": [{"text": "hi"}],
            "contextId": "c",
            "metadata": {"final": 1},
            "strange": 1,
        },
        "configuration": {
            "acceptedOutputModes": ["text/plain"],
            "returnImmediately": False,
            "historyLength": 1,
            "taskPushNotificationConfig": HOOK,
        },
        "metadata": METADATA,
        "odd": 1,
    },
}
PART: dict[str, JsonObject] = {"0.3": {"kind": "text", "text": "hi"}, "1.0": {"text": "hi"}}


def send_in(dialect: str, **members: Any) -> Send:
    request = ASKED[dialect]
    return DIALECTS[dialect].requests.read_send({**request, "message": {**request["message"], **members}}, ANY)


@pytest.mark.parametrize("log_dialect", ["0.3", "1.0"])
@pytest.mark.parametrize("dialect", ["0.1", "0.3", "1.0"])
def test_a_first_message_is_sent_in_the_workers_dialect_without_a_task(dialect: str, log_dialect: str) -> None:
    send = send_in(dialect)
    message = calls.send_params(send, FIRST[log_dialect], {}, stream=True)["message"]
    assert message["parts"] == [PART[log_dialect]]
    assert message["role"] == ("user" if log_dialect == "0.3" else "ROLE_USER")
    assert message.get("kind") == ("message" if log_dialect == "0.3" else None)
    assert message["messageId"] == send.message_id
    assert message["contextId"] == "c"
    assert message["metadata"] == {"final": 1}
    assert "taskId" not in message


@pytest.mark.parametrize("log_dialect", ["0.3", "1.0"])
@pytest.mark.parametrize("dialect", ["0.1", "0.3", "1.0"])
def test_params_have_what_the_worker_needs_and_nothing_that_only_the_hub_needs(dialect: str, log_dialect: str) -> None:
    streamed = calls.send_params(send_in(dialect), FIRST[log_dialect], {}, stream=True)
    blocking = calls.send_params(send_in(dialect), FIRST[log_dialect], {}, stream=False)
    for params in (streamed, blocking):
        assert params["metadata"] == METADATA
        assert params["configuration"]["acceptedOutputModes"] == ["text/plain"]
        names = {
            "historyLength",
            "pushNotificationConfig",
            "taskPushNotificationConfig",
            "pushNotification",
            "tenant",
            "sessionId",
        }
        assert names.isdisjoint(params.keys() | params["configuration"].keys())
    waits = {"0.3": ("blocking", False), "1.0": ("returnImmediately", True)}
    name, value = waits[log_dialect]
    assert blocking["configuration"][name] is value
    assert streamed["configuration"].get(name) is not value


@pytest.mark.parametrize("dialect", ["0.3", "1.0"])
def test_a_worker_of_the_callers_dialect_gets_every_member_it_may_know(dialect: str) -> None:
    params = calls.send_params(send_in(dialect), FIRST[dialect], {}, stream=True)
    assert (params["odd"], params["message"]["strange"]) == (1, 1)


@pytest.mark.parametrize(("dialect", "log_dialect"), [("0.3", "1.0"), ("1.0", "0.3"), ("0.1", "1.0"), ("0.1", "0.3")])
def test_a_worker_of_another_dialect_gets_what_both_can_express(dialect: str, log_dialect: str) -> None:
    params = calls.send_params(send_in(dialect), FIRST[log_dialect], {}, stream=True)
    assert "odd" not in params
    assert "strange" not in params["message"]


@pytest.mark.parametrize("log_dialect", ["0.3", "1.0"])
@pytest.mark.parametrize("dialect", ["0.3", "1.0"])
def test_a_later_message_has_the_workers_ids(dialect: str, log_dialect: str) -> None:
    send = send_in(dialect, taskId="T", contextId="C", referenceTaskIds=["R", "Q"])
    message = calls.send_params(send, LATER[log_dialect], {"R": "wr"}, stream=True)["message"]
    assert (message["taskId"], message["contextId"], message["referenceTaskIds"]) == ("wt", "wc", ["wr", "Q"])


@pytest.mark.parametrize("log_dialect", ["0.3", "1.0"])
def test_the_callers_params_do_not_change(log_dialect: str) -> None:
    send = send_in(log_dialect, taskId="T")
    before = repr(send.params)
    calls.send_params(send, LATER[log_dialect], {}, stream=False)
    assert repr(send.params) == before


def test_an_empty_configuration_is_left_out() -> None:
    for dialect in ("0.3", "1.0"):
        send = DIALECTS[dialect].requests.read_send({"message": {"parts": [PART[dialect]]}}, ANY)
        for log_dialect in ("0.3", "1.0"):
            assert calls.send_params(send, FIRST[log_dialect], {}, stream=True).keys() == {"message"}


@pytest.mark.parametrize("modes", [None, "text", [1], {}])
def test_accepted_modes_that_are_no_list_of_strings_are_not_translated(modes: object) -> None:
    send = DIALECTS["0.3"].requests.read_send(
        {"message": {"parts": [PART["0.3"]]}, "configuration": {"acceptedOutputModes": modes}}, ANY
    )
    assert "configuration" not in calls.send_params(send, FIRST["1.0"], {}, stream=True)


@pytest.mark.parametrize("log_dialect", ["0.3", "1.0"])
def test_other_calls_name_the_task_as_the_worker_does(log_dialect: str) -> None:
    assert calls.task_params(LATER[log_dialect]) == {"id": "wt"}
