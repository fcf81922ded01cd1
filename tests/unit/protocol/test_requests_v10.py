"""Requests in 1.0: ProtoJSON, in camelCase or in snake_case, with the tenant for the role."""

from __future__ import annotations

from typing import Any

import pytest

from rolecall.errors import InvalidParams, MethodNotFound, RoleUnknown
from rolecall.model.a2a import TaskState
from rolecall.model.command import CancelTask, GetTask, ListTasks, Subscribe, Target, TaskQuery
from rolecall.model.ids import Cursor, TaskId
from rolecall.model.push import PushConfig
from rolecall.protocol.dialects import DIALECTS
from rolecall.protocol.v1_0 import requests as v10

ANY = Target()
NOT_A_LENGTH = '"historyLength" must be a whole number, 0 or more.'
NOT_A_SIZE = '"pageSize" must be a whole number from 1 to 100.'
NOT_A_STATE = '"status" must be the name of a task state, such as TASK_STATE_WORKING.'
NOT_A_TIME = '"statusTimestampAfter" must be a time such as 2026-01-31T12:00:00Z.'
NOT_A_ROLE = '"message.role" must be ROLE_USER or ROLE_AGENT.'
NOT_A_PART = '"message.parts[0]" must have exactly one of text, raw, url, data.'
LOOKS_OLD = f"{NOT_A_PART} This looks like 0.3: its method is message/send."
HOOK = "configuration.taskPushNotificationConfig"


def message(**members: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hi"}], **members}}


def parts(*given: Any) -> dict[str, Any]:
    return message(parts=list(given))


def configured(**configuration: Any) -> dict[str, Any]:
    return {**message(), "configuration": configuration}


def hook(**members: Any) -> dict[str, Any]:
    return configured(taskPushNotificationConfig={"url": "https://example.org/", **members})


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, '"message" must be an object.'),
        ({"message": None}, '"message" must be an object.'),
        ({"message": "hi"}, '"message" must be an object.'),
        (message(parts=[]), '"message.parts" must be a list with at least one part.'),
        (message(parts=None), '"message.parts" must be a list with at least one part.'),
        (message(parts={"text": "x"}), '"message.parts" must be a list with at least one part.'),
        (parts(5), '"message.parts[0]" must be an object.'),
        (parts({}), NOT_A_PART),
        (parts({"text": "x", "url": "u"}), NOT_A_PART),
        (parts({"text": None}), NOT_A_PART),
        (parts({"kind": "text", "text": None}), NOT_A_PART),
        (parts({"kind": "file", "file": {"uri": "u"}}), LOOKS_OLD),
        (parts({"file": {"uri": "u"}}), LOOKS_OLD),
        (parts({"text": 5}), '"message.parts[0].text" must be a string.'),
        (parts({"raw": 5}), '"message.parts[0].raw" must be a string.'),
        (parts({"raw": "%"}), '"message.parts[0].raw" must be base64.'),
        (parts({"url": []}), '"message.parts[0].url" must be a string.'),
        (parts({"text": "x", "mediaType": 5}), '"message.parts[0].mediaType" must be a string.'),
        (parts({"text": "x", "filename": {}}), '"message.parts[0].filename" must be a string.'),
        (parts({"data": 1, "metadata": []}), '"message.parts[0].metadata" must be an object.'),
        (message(role="ROLE_UNSPECIFIED"), NOT_A_ROLE),
        (message(role=0), NOT_A_ROLE),
        (message(role=True), NOT_A_ROLE),
        (message(role=["ROLE_USER"]), NOT_A_ROLE),
        (message(role=1.5), NOT_A_ROLE),
        (message(messageId=5), '"message.messageId" must be a string of at most 256 characters.'),
        (message(messageId=""), '"message.messageId" must not be empty.'),
        (message(messageId="x" * 257), '"message.messageId" must be a string of at most 256 characters.'),
        (message(taskId=[]), '"message.taskId" must be a string of at most 256 characters.'),
        (message(contextId=5), '"message.contextId" must be a string of at most 256 characters.'),
        (message(referenceTaskIds="x"), '"message.referenceTaskIds" must be a list.'),
        (message(referenceTaskIds=[{}]), '"message.referenceTaskIds" must be a list of strings.'),
        (message(extensions=5), '"message.extensions" must be a list.'),
        (message(metadata="x"), '"message.metadata" must be an object.'),
        (message(metadata={"role": 5}), '"metadata.role" must be a role, or role:instance.'),
        ({**message(), "metadata": []}, '"metadata" must be an object.'),
        ({**message(), "metadata": {"waitSeconds": {}}}, '"metadata.waitSeconds" must be a number from 0 to 300.'),
        ({**message(), "tenant": 5}, '"tenant" must be a role, or role:instance.'),
        ({**message(), "tenant": "x" * 201}, '"tenant" must be a role, or role:instance.'),
        ({**message(), "tenant": "a:"}, '"tenant" names an instance that cannot exist.'),
        ({**message(), "configuration": 5}, '"configuration" must be an object.'),
        (configured(returnImmediately="no"), '"configuration.returnImmediately" must be true or false.'),
        (configured(historyLength=-1), NOT_A_LENGTH),
        (configured(historyLength="5"), NOT_A_LENGTH),
        (configured(taskPushNotificationConfig=[]), f'"{HOOK}" must be an object.'),
        (hook(url=""), f'"{HOOK}.url" must be a URL of at most 2048 characters.'),
        (hook(id=5), f'"{HOOK}.id" must be a string of 1 to 256 characters.'),
        (hook(token=5), f'"{HOOK}.token" must be one line of at most 4096 characters.'),
        (hook(authentication="Bearer"), f'"{HOOK}.authentication" must be an object.'),
        (
            hook(authentication={"scheme": ["Bearer"]}),
            f'"{HOOK}.authentication.scheme" must be one line of at most 4096 characters.',
        ),
        (
            hook(authentication={"scheme": "Bearer", "credentials": "a\r\nb"}),
            f'"{HOOK}.authentication.credentials" must be one line of at most 4096 characters.',
        ),
        (message(task_id="a", taskId="b"), '"taskId" and "task_id" are two spellings of one member, and differ.'),
    ],
)
def test_a_wrong_message_is_refused_with_the_path_of_the_member(params: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidParams) as refusal:
        v10.read_send(params, ANY)
    assert refusal.value.message == text


def test_every_member_of_a_message_is_read() -> None:
    params = {
        "tenant": "echo:a",
        "message": {
            "messageId": "m",
            "role": "ROLE_USER",
            "parts": [{"text": "a", "mediaType": "text/plain"}, {"raw": "AA=="}, {"url": "u"}, {"data": None}],
            "taskId": "t",
            "contextId": "c",
            "referenceTaskIds": ["r"],
            "metadata": {"skill": "s", "waitSeconds": 2.5},
        },
        "configuration": {"returnImmediately": True, "historyLength": 0},
    }
    send = v10.read_send(params, ANY, trace="tr", key="k", extensions=("e",))
    assert send.target == Target(role="echo", instance="a", skill="s")
    assert (send.message_id, send.task_id, send.context_id, send.references) == ("m", "t", "c", ("r",))
    assert (send.blocking, send.history_length, send.wait) == (False, 0, 2.5)
    assert (send.dialect, send.trace, send.key, send.extensions) == ("1.0", "tr", "k", ("e",))
    assert send.params["message"]["parts"][3] == {"data": None}


def test_members_that_protojson_omits_or_spells_differently_are_mended() -> None:
    incomplete: dict[str, Any] = {
        "message": {
            "message_id": "m",
            "task_id": "t",
            "context_id": "c",
            "reference_task_ids": ["r"],
            "role": None,
            "kind": "message",
            "parts": [{"kind": "text", "text": "a", "media_type": "text/plain", "filename": None}],
        },
        "configuration": {
            "history_length": 2,
            "return_immediately": True,
            "accepted_output_modes": ["x"],
            "task_push_notification_config": {"url": "https://example.org/"},
        },
    }
    send = v10.read_send(incomplete, ANY)
    sent = send.params["message"]
    assert sent["parts"] == [{"text": "a", "mediaType": "text/plain", "filename": None}]
    assert (sent["role"], "kind" in sent, sent["taskId"]) == ("ROLE_USER", False, "t")
    assert (send.message_id, send.task_id, send.context_id, send.references) == ("m", "t", "c", ("r",))
    assert (send.blocking, send.history_length) == (False, 2)
    assert send.push is not None
    assert send.params["configuration"]["acceptedOutputModes"] == ["x"]


@pytest.mark.parametrize(
    ("role", "read"),
    [("ROLE_USER", "ROLE_USER"), ("user", "ROLE_USER"), (1, "ROLE_USER"), (2, "ROLE_AGENT"), ("agent", "ROLE_AGENT")],
)
def test_a_role_is_read_in_any_spelling(role: object, read: str) -> None:
    assert v10.read_send(message(role=role), ANY).params["message"]["role"] == read


def test_two_spellings_of_one_member_are_no_conflict_where_they_agree() -> None:
    for given in ({"task_id": "t", "taskId": "t"}, {"task_id": "t", "taskId": None}, {"task_id": None, "taskId": "t"}):
        assert v10.read_send(message(**given), ANY).task_id == "t"


def test_a_message_without_an_id_gets_one() -> None:
    first, second = (v10.read_send({"message": {"parts": [{"text": "hi"}]}}, ANY) for _ in range(2))
    assert first.message_id == first.params["message"]["messageId"] != second.message_id


def test_a_call_without_a_configuration_waits_for_the_end() -> None:
    for configuration, waits in (({}, True), ({"returnImmediately": False}, True), ({"returnImmediately": True}, False)):
        assert v10.read_send(configured(**configuration), ANY).blocking is waits


def test_path_tenant_and_metadata_name_the_role_in_this_order() -> None:
    params = {**message(metadata={"role": "other"}), "tenant": "echo"}
    assert v10.read_send(params, Target(path_role="echo", path_instance="a")).target == Target(
        path_role="echo", path_instance="a", role="echo"
    )
    assert v10.read_send({**message(), "tenant": "", "metadata": {"role": "r:i"}}, ANY).target == Target(role="r", instance="i")


def test_a_hook_of_a_message_has_every_member_and_no_task_yet() -> None:
    given = {"id": "", "token": "t", "authentication": {"scheme": "Bearer", "credentials": "c"}, "taskId": ""}
    push = v10.read_send(hook(**given), ANY).push
    assert push == PushConfig(TaskId(""), "", "https://example.org/", "1.0", "t", ("Bearer",), "c")


# --- everything else


def test_get_cancel_and_subscribe_take_the_tenant_too() -> None:
    target = Target(role="echo")
    params = {"id": "t", "tenant": "echo", "history_length": 0}
    assert v10.read_get({**params}, ANY, ("1.0",)) == GetTask(target, TaskId("t"), ("1.0",), 0)
    assert v10.read_cancel(params, ANY, ("1.0",)) == CancelTask(target, TaskId("t"), ("1.0",))
    assert v10.read_subscribe(params, ANY, Cursor(2), ("1.0",)) == Subscribe(target, TaskId("t"), ("1.0",), Cursor(2))


def test_a_list_has_every_filter() -> None:
    params = {
        "tenant": "echo",
        "contextId": "c",
        "status": "TASK_STATE_INPUT_REQUIRED",
        "pageSize": 7,
        "pageToken": "tok",
        "historyLength": 0,
        "statusTimestampAfter": "2025-01-01T00:00:00+01:00",
        "includeArtifacts": True,
    }
    query = TaskQuery("c", "echo", (TaskState.INPUT_REQUIRED,), 1735686000.0, 7, "tok")
    assert v10.read_list(params, ANY) == ListTasks(query, "1.0", 0, artifacts=True)


@pytest.mark.parametrize("nothing", [None, ""])
def test_a_list_without_filters_is_all_there_is_fifty_at_a_time(nothing: object) -> None:
    names = ("contextId", "status", "pageToken", "statusTimestampAfter", "tenant")
    empty = {**dict.fromkeys(names, nothing), "pageSize": None, "historyLength": None, "includeArtifacts": None}
    assert (
        v10.read_list({**empty}, ANY) == v10.read_list({}, ANY) == ListTasks(TaskQuery(limit=50), "1.0", None, artifacts=False)
    )


@pytest.mark.parametrize("given", ["TASK_STATE_COMPLETED", "completed", 3, "TASK_STATE_CANCELED", "TASK_STATE_CANCELLED"])
def test_a_state_is_named_in_any_spelling(given: object) -> None:
    assert v10.read_list({"status": given}, ANY).query.states in ((TaskState.COMPLETED,), (TaskState.CANCELED,))


@pytest.mark.parametrize("given", ["TASK_STATE_UNSPECIFIED", 0, "", None, "UNRECOGNIZED"])
def test_the_unspecified_state_is_no_filter(given: object) -> None:
    assert v10.read_list({"status": given}, ANY).query.states == ()


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"pageSize": 0}, NOT_A_SIZE),
        ({"pageSize": 101}, NOT_A_SIZE),
        ({"pageSize": -1}, NOT_A_SIZE),
        ({"pageSize": True}, NOT_A_SIZE),
        ({"page_size": "5"}, NOT_A_SIZE),
        ({"status": "TASK_STATE_DREAMING"}, NOT_A_STATE),
        ({"status": "unknown"}, NOT_A_STATE),
        ({"status": True}, NOT_A_STATE),
        ({"status": 99}, NOT_A_STATE),
        ({"status": ["TASK_STATE_WORKING"]}, NOT_A_STATE),
        ({"statusTimestampAfter": "yesterday"}, NOT_A_TIME),
        ({"statusTimestampAfter": 5}, NOT_A_TIME),
        ({"statusTimestampAfter": "2025-02-30T00:00:00Z"}, NOT_A_TIME),
        ({"contextId": 5}, '"contextId" must be a string of at most 1024 characters.'),
        ({"pageToken": ["x"]}, '"pageToken" must be a string of at most 1024 characters.'),
        ({"pageToken": "x" * 1025}, '"pageToken" must be a string of at most 1024 characters.'),
        ({"historyLength": -1}, NOT_A_LENGTH),
        ({"includeArtifacts": "true"}, '"includeArtifacts" must be true or false.'),
    ],
)
def test_a_wrong_filter_is_refused_with_its_name(params: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidParams) as refusal:
        v10.read_list(params, ANY)
    assert refusal.value.message == text


def test_a_list_behind_a_roles_address_is_of_that_role_and_of_no_other_tenant() -> None:
    assert v10.read_list({"tenant": "echo"}, Target(path_role="echo")).query.role == "echo"
    with pytest.raises(RoleUnknown):
        v10.read_list({"tenant": "other"}, Target(path_role="echo"))


def test_a_list_in_0_3_asks_as_in_1_0_and_0_1_has_none() -> None:
    assert DIALECTS["0.3"].requests.read_list({"pageSize": 2}, ANY) == ListTasks(TaskQuery(limit=2), "0.3")
    with pytest.raises(MethodNotFound):
        DIALECTS["0.1"].requests.read_list({}, ANY)


def test_in_push_calls_the_id_is_the_configs() -> None:
    params = {"tenant": "echo", "taskId": "t", "id": "p", "url": "https://example.org/", "token": "x"}
    command = v10.read_set_push(params, ANY)
    assert command.target == Target(role="echo")
    assert command.config == PushConfig(TaskId("t"), "p", "https://example.org/", "1.0", "x")
    named = v10.read_name_push({"task_id": "t", "id": "p"}, ANY)
    assert (named.task_id, named.id) == ("t", "p")
    assert v10.read_name_push({"taskId": "t"}, ANY, required=False).id is None


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"taskId": "t"}, '"id" must name a push notification config.'),
        ({"taskId": "t", "id": ""}, '"id" must name a push notification config.'),
        ({"taskId": "t", "id": 5}, '"id" must be a string of 1 to 256 characters.'),
        ({"taskId": "t", "id": "x" * 257}, '"id" must be a string of 1 to 256 characters.'),
        ({"id": "p"}, '"params.id" must name a task.'),
        ({"id": "p", "taskId": 5}, '"params.id" must be a string of 1 to 256 characters.'),
    ],
)
def test_a_config_that_is_not_named_is_refused(params: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidParams) as refusal:
        v10.read_name_push(params, ANY)
    assert refusal.value.message == text
