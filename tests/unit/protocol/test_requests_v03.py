"""Requests in 0.3: lenient in, strict out."""

from __future__ import annotations

from typing import Any

import pytest

from rolecall.errors import InvalidParams
from rolecall.model.a2a import Ids
from rolecall.model.command import CancelTask, GetTask, Subscribe, Target
from rolecall.model.ids import Cursor, TaskId
from rolecall.model.push import PushConfig
from rolecall.protocol.callers.params import read_task_id
from rolecall.protocol.v0_3 import requests as v03
from rolecall.protocol.v0_3.events import read_result
from rolecall.protocol.workers import requests as calls

ANY = Target()


def message(**members: Any) -> dict[str, Any]:
    return {
        "message": {"kind": "message", "messageId": "m1", "role": "user", "parts": [{"kind": "text", "text": "hi"}], **members}
    }


def test_an_incomplete_message_is_mended() -> None:
    send = v03.read_send(
        {
            "message": {
                "parts": [
                    {"type": "text", "text": "a"},
                    {"text": "b"},
                    {"type": "text", "content": "c"},
                    {"kind": "text", "content": "d"},
                ]
            }
        },
        ANY,
    )
    message_sent = send.params["message"]
    assert message_sent["kind"] == "message"
    assert message_sent["role"] == "user"
    assert message_sent["messageId"] == send.message_id != ""
    assert [part["kind"] for part in message_sent["parts"]] == ["text"] * 4
    assert [part["text"] for part in message_sent["parts"]] == ["a", "b", "c", "d"]


STRINGS = "must be a list of strings."
NOT_A_WAIT = '"metadata.waitSeconds" must be a number from 0 to 300.'
NOT_A_LENGTH = '"historyLength" must be a whole number, 0 or more.'


def parts(*given: Any) -> dict[str, Any]:
    return message(parts=list(given))


def configured(**configuration: Any) -> dict[str, Any]:
    return {**message(), "configuration": configuration}


def hook(**members: Any) -> dict[str, Any]:
    return configured(pushNotificationConfig={"url": "https://example.org/", **members})


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, '"params.message" must be an object.'),
        ({"message": None}, '"params.message" must be an object.'),
        ({"message": []}, '"params.message" must be an object.'),
        (message(parts=[]), '"message.parts" must be a list with at least one part.'),
        (message(parts=None), '"message.parts" must be a list with at least one part.'),
        (message(parts={}), '"message.parts" must be a list with at least one part.'),
        (parts("x"), '"message.parts[0]" must be an object.'),
        (parts({"text": "a"}, None), '"message.parts[1]" must be an object.'),
        (parts({"kind": "xyz", "text": "la"}), '"message.parts[0].kind" must be text, file or data.'),
        (parts({}), '"message.parts[0].kind" must be text, file or data.'),
        (parts({"kind": ["text"]}), '"message.parts[0].kind" must be text, file or data.'),
        (parts({"kind": "text", "text": 5}), '"message.parts[0].text" must be a string.'),
        (parts({"kind": "text"}), '"message.parts[0].text" must be a string.'),
        (parts({"kind": "text", "text": "x", "metadata": 1}), '"message.parts[0].metadata" must be an object.'),
        (parts({"kind": "data", "data": [1]}), '"message.parts[0].data" must be an object.'),
        (parts({"kind": "file", "file": "x"}), '"message.parts[0].file" must be an object.'),
        (parts({"kind": "file", "file": {}}), '"message.parts[0].file" must have either bytes or uri.'),
        (
            parts({"kind": "file", "file": {"bytes": "AA==", "uri": "u"}}),
            '"message.parts[0].file" must have either bytes or uri.',
        ),
        (parts({"kind": "file", "file": {"bytes": "%%"}}), '"message.parts[0].file.bytes" must be base64.'),
        (parts({"kind": "file", "file": {"bytes": 5}}), '"message.parts[0].file.bytes" must be a string.'),
        (parts({"kind": "file", "file": {"uri": 5}}), '"message.parts[0].file.uri" must be a string.'),
        (parts({"kind": "file", "file": {"uri": "u", "name": 5}}), '"message.parts[0].file.name" must be a string.'),
        (parts({"kind": "file", "file": {"uri": "u", "mimeType": []}}), '"message.parts[0].file.mimeType" must be a string.'),
        (message(role="system"), '"message.role" must be "user" or "agent".'),
        (message(role=["user"]), '"message.role" must be "user" or "agent".'),
        (message(messageId=None), '"message.messageId" is required.'),
        (message(messageId=5), '"message.messageId" must be a string of at most 256 characters.'),
        (message(messageId=""), '"message.messageId" must not be empty.'),
        (message(taskId=5), '"message.taskId" must be a string of at most 256 characters.'),
        (message(taskId="x" * 257), '"message.taskId" must be a string of at most 256 characters.'),
        (message(contextId={}), '"message.contextId" must be a string of at most 256 characters.'),
        (message(referenceTaskIds="x"), '"message.referenceTaskIds" must be a list.'),
        (message(referenceTaskIds=[1]), f'"message.referenceTaskIds" {STRINGS}'),
        (message(extensions={}), '"message.extensions" must be a list.'),
        (message(extensions=[None]), f'"message.extensions" {STRINGS}'),
        (message(metadata=[]), '"message.metadata" must be an object.'),
        (message(metadata={"role": 5}), '"metadata.role" must be a role, or role:instance.'),
        (message(metadata={"role": ""}), '"metadata.role" must be a role, or role:instance.'),
        (message(metadata={"role": "a:?"}), '"metadata.role" names an instance that cannot exist.'),
        ({**message(), "metadata": "x"}, '"metadata" must be an object.'),
        ({**message(), "metadata": {"skill": []}}, '"metadata.skill" must be a string.'),
        ({**message(), "metadata": {"waitSeconds": "5"}}, NOT_A_WAIT),
        ({**message(), "metadata": {"waitSeconds": True}}, NOT_A_WAIT),
        ({**message(), "metadata": {"waitSeconds": 1e6}}, NOT_A_WAIT),
        ({**message(), "metadata": {"waitSeconds": -1}}, NOT_A_WAIT),
        ({**message(), "configuration": []}, '"params.configuration" must be an object.'),
        (configured(blocking="yes"), '"configuration.blocking" must be true or false.'),
        (configured(historyLength=-1), NOT_A_LENGTH),
        (configured(historyLength=True), NOT_A_LENGTH),
        (configured(historyLength=1.5), NOT_A_LENGTH),
        (configured(historyLength="1"), NOT_A_LENGTH),
        (configured(pushNotificationConfig="x"), '"configuration.pushNotificationConfig" must be an object.'),
        (hook(url=None), '"configuration.pushNotificationConfig.url" must be a URL of at most 2048 characters.'),
        (hook(url="h" * 2049), '"configuration.pushNotificationConfig.url" must be a URL of at most 2048 characters.'),
        (hook(id=5), '"configuration.pushNotificationConfig.id" must be a string of 1 to 256 characters.'),
        (hook(token="a\nb"), '"configuration.pushNotificationConfig.token" must be one line of at most 4096 characters.'),
        (hook(authentication=[]), '"configuration.pushNotificationConfig.authentication" must be an object.'),
        (
            hook(authentication={"schemes": "Bearer"}),
            '"configuration.pushNotificationConfig.authentication.schemes" must be a list of names.',
        ),
        (
            hook(authentication={"schemes": ["Bearer"], "credentials": 5}),
            '"configuration.pushNotificationConfig.authentication.credentials" must be one line of at most 4096 characters.',
        ),
    ],
)
def test_a_wrong_message_is_refused_with_the_path_of_the_member(params: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidParams) as refusal:
        v03.read_send(params, ANY)
    assert refusal.value.message == text


def test_null_is_the_same_as_absent() -> None:
    nothing = ("kind", "role", "messageId", "taskId", "contextId", "referenceTaskIds", "extensions", "metadata")
    params = {**message(**dict.fromkeys(nothing)), "configuration": None, "metadata": None}
    send = v03.read_send(params, ANY)
    assert send.params["message"]["role"] == "user"
    assert (send.task_id, send.context_id, send.references, send.history_length) == (None, None, (), None)
    assert send.message_id
    assert send.blocking
    assert v03.read_send(configured(blocking=None, historyLength=None, pushNotificationConfig=None), ANY).push is None


@pytest.mark.parametrize(("blocking", "waits"), [(True, True), (False, False), (None, True)])
def test_a_call_without_a_configuration_waits_for_the_end(blocking: bool | None, waits: bool) -> None:
    assert v03.read_send(configured(blocking=blocking), ANY).blocking is waits


@pytest.mark.parametrize("length", [0, 1, 10**9])
def test_a_history_of_any_length_can_be_requested(length: int) -> None:
    assert v03.read_send(configured(historyLength=length), ANY).history_length == length
    assert v03.read_get({"id": "t", "historyLength": length}, ANY, ("0.3",)).history_length == length


def test_a_hook_of_a_message_has_every_member_and_no_task_yet() -> None:
    given = {"id": "p", "token": "t", "authentication": {"schemes": ["Bearer", "Basic"], "credentials": "c"}}
    push = v03.read_send(hook(**given), ANY).push
    assert push == PushConfig(TaskId(""), "p", "https://example.org/", "0.3", "t", ("Bearer", "Basic"), "c")


def test_a_config_is_set_for_a_task_and_named_by_the_tasks_id_and_its_own() -> None:
    params = {"taskId": "t", "pushNotificationConfig": {"url": "https://example.org/"}}
    assert v03.read_set_push(params, ANY).config == PushConfig(TaskId("t"), "", "https://example.org/", "0.3")
    named = v03.read_name_push({"id": "t", "pushNotificationConfigId": "p"}, ANY)
    assert (named.task_id, named.id) == ("t", "p")
    assert v03.read_name_push({"id": "t"}, ANY).id is None


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"taskId": "t"}, '"params.pushNotificationConfig" must be an object with a url.'),
        ({"taskId": "t", "pushNotificationConfig": []}, '"params.pushNotificationConfig" must be an object.'),
        ({"pushNotificationConfig": {"url": "u"}}, '"params.id" must name a task.'),
        (
            {"taskId": "t", "pushNotificationConfig": {"id": "p"}},
            '"pushNotificationConfig.url" must be a URL of at most 2048 characters.',
        ),
    ],
)
def test_a_config_that_is_none_is_refused(params: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidParams) as refusal:
        v03.read_set_push(params, ANY)
    assert refusal.value.message == text


@pytest.mark.parametrize("params", [{}, {"pushNotificationConfigId": None}, {"pushNotificationConfigId": ""}])
def test_a_config_need_not_be_named(params: dict[str, Any]) -> None:
    """The 0.3 of a2a-sdk 1.x sends an empty id for none."""
    named = v03.read_name_push({"id": "t", **params}, ANY)
    assert (named.task_id, named.id) == ("t", None)


@pytest.mark.parametrize("name", [5, "x" * 257])
def test_a_config_that_is_named_wrongly_is_refused(name: Any) -> None:
    with pytest.raises(InvalidParams, match="pushNotificationConfigId"):
        v03.read_name_push({"id": "t", "pushNotificationConfigId": name}, ANY)


def test_a_message_is_the_same_with_and_without_a_push_config() -> None:
    push = {"pushNotificationConfig": {"url": "https://example.org/"}}
    for configuration in ({}, {"blocking": False}):
        plain = message(messageId="m")
        without = v03.read_send({**plain, "configuration": configuration} if configuration else plain, ANY)
        given = v03.read_send({**message(messageId="m"), "configuration": {**configuration, **push}}, ANY)
        assert given.push is not None
        assert given.params == without.params


def test_get_cancel_and_subscribe_have_the_dialects_of_the_call() -> None:
    for dialects in (("0.3",), ("0.1", "0.3"), ()):
        assert v03.read_get({"id": "t"}, ANY, dialects) == GetTask(ANY, TaskId("t"), dialects)
        assert v03.read_cancel({"id": "t", "metadata": {}}, ANY, dialects) == CancelTask(ANY, TaskId("t"), dialects)
        assert v03.read_subscribe({"id": "t"}, ANY, Cursor(3), dialects) == Subscribe(ANY, TaskId("t"), dialects, Cursor(3))
    with pytest.raises(InvalidParams) as refusal:
        v03.read_get({"id": "t", "historyLength": -1}, ANY, ("0.3",))
    assert refusal.value.message == NOT_A_LENGTH


def test_a_role_is_named_in_either_metadata_and_params_come_after_the_message() -> None:
    send = v03.read_send({**message(metadata={"role": "a:x:y"}), "metadata": {"role": "b", "skillId": "s"}}, ANY)
    assert (send.target.role, send.target.instance, send.target.skill) == ("a", "x:y", "s")


@pytest.mark.parametrize(
    "params", [{"id": "t"}, {"taskId": "t"}, {"task_id": "t"}, {"name": "tasks/t"}, {"id": "t", "taskId": "t"}]
)
def test_a_task_is_named_in_any_spelling(params: dict[str, Any]) -> None:
    assert read_task_id(params) == "t"


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, '"params.id" must name a task.'),
        ({"id": None}, '"params.id" must name a task.'),
        ({"name": "t"}, '"params.id" must name a task.'),
        ({"name": ["tasks/t"]}, '"params.id" must name a task.'),
        ({"id": ""}, '"params.id" must be a string of 1 to 256 characters.'),
        ({"id": 5}, '"params.id" must be a string of 1 to 256 characters.'),
        ({"id": ["t"]}, '"params.id" must be a string of 1 to 256 characters.'),
        ({"id": "x" * 257}, '"params.id" must be a string of 1 to 256 characters.'),
        ({"name": "tasks/"}, '"params.id" must be a string of 1 to 256 characters.'),
        ({"id": "a", "taskId": "b"}, '"params.id" and its other spellings name different tasks.'),
        ({"id": "a", "name": "tasks/b/pushNotificationConfigs/c"}, '"params.id" and its other spellings name different tasks.'),
    ],
)
def test_a_task_that_is_not_named_clearly_is_refused(params: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidParams) as refusal:
        read_task_id(params)
    assert refusal.value.message == text


def test_a_worker_gets_its_own_ids_and_every_member_it_may_know() -> None:
    params = {
        **message(taskId="hub-task", contextId="hub-ctx", referenceTaskIds=["hub-ref"], strange=1),
        "other": {"kind": "x"},
    }
    send = v03.read_send(params, ANY)
    ids = Ids(TaskId("hub-task"), "hub-ctx", "their-task", "their-ctx")
    sent = calls.send_params(send, ids, {"hub-ref": "their-ref"}, stream=True)
    message_sent = sent["message"]
    assert (message_sent["taskId"], message_sent["contextId"], message_sent["referenceTaskIds"]) == (
        "their-task",
        "their-ctx",
        ["their-ref"],
    )
    assert message_sent["messageId"] == "m1"
    assert message_sent["strange"] == 1
    assert sent["other"] == {"kind": "x"}


def test_a_first_message_carries_no_task_id_to_the_worker() -> None:
    send = v03.read_send(message(contextId="c"), ANY)
    sent = calls.send_params(send, Ids(TaskId("t"), "c"), {}, stream=False)
    assert "taskId" not in sent["message"]
    assert sent["message"]["contextId"] == "c"
    assert sent["configuration"] == {"blocking": False}


@pytest.mark.parametrize("metadata", [None, {"a": 1, "usage": "mine"}])
def test_the_usage_that_a_task_reports_is_moved_to_its_metadata(metadata: dict[str, Any] | None) -> None:
    task = {"kind": "task", "id": "t", "status": {"state": "completed"}, "data": {"usage": 7}, "metadata": metadata}
    document = read_result(task).document
    assert document["metadata"] == {"usage": 7, **(metadata or {})}
    assert "data" not in document


def test_a_member_data_that_is_not_an_object_is_not_moved() -> None:
    task = {"kind": "task", "id": "t", "status": {"state": "completed"}, "data": [1]}
    assert read_result(task).document["data"] == [1]
