"""What surrounds documents for callers, in each dialect."""

from __future__ import annotations

import pytest

from rolecall.errors import (
    ExtendedCardNotConfigured,
    HubError,
    InvalidAnswer,
    InvalidParams,
    PushConfigNotFound,
    PushNotSupported,
    TaskEnded,
    TaskNotCancelable,
    TaskNotFound,
    TaskOver,
    UnsupportedOperation,
    VersionNotSupported,
    WorkerFault,
)
from rolecall.model.a2a import EventKind
from rolecall.model.ids import TaskId
from rolecall.model.push import PushConfig
from rolecall.protocol.callers import answers
from rolecall.protocol.dialects import DIALECTS
from rolecall.protocol.faults import fault_of
from rolecall.protocol.text.jsontext import parse

CONFIG = PushConfig(TaskId("T"), "p", "https://example.org/", "0.3", "token", ("Bearer", "Basic"), "secret")
BARE = PushConfig(TaskId("T"), "p", "https://example.org/", "0.3")
URL = "https://example.org/"


@pytest.mark.parametrize("kind", EventKind)
def test_in_1_0_a_member_names_the_kind_of_a_document(kind: EventKind) -> None:
    names = {"task": "task", "message": "message", "status-update": "statusUpdate", "artifact-update": "artifactUpdate"}
    assert parse(answers.wrapped(kind, b'{"a":1}', "1.0")) == {names[kind.value]: {"a": 1}}
    assert answers.wrapped(kind, b'{"a":1}', "0.3") == answers.wrapped(kind, b'{"a":1}', "0.1") == b'{"a":1}'


def test_a_page_of_tasks_always_has_its_four_members() -> None:
    assert parse(answers.task_page([], token=None, size=50, total=0)) == {
        "tasks": [],
        "nextPageToken": "",
        "pageSize": 50,
        "totalSize": 0,
    }
    page = parse(answers.task_page([b'{"id":"a"}', b'{"id":"b"}'], token='1.5/"x', size=2, total=9))
    assert page == {"tasks": [{"id": "a"}, {"id": "b"}], "nextPageToken": '1.5/"x', "pageSize": 2, "totalSize": 9}


@pytest.mark.parametrize(
    ("dialect", "full", "bare"),
    [
        (
            "0.1",
            {
                "id": "mine",
                "pushNotificationConfig": {"id": "p", "url": URL, "authentication": {"schemes": ["Bearer", "Basic"]}},
            },
            {"id": "mine", "pushNotificationConfig": {"id": "p", "url": URL}},
        ),
        (
            "0.3",
            {
                "taskId": "T",
                "pushNotificationConfig": {"id": "p", "url": URL, "authentication": {"schemes": ["Bearer", "Basic"]}},
            },
            {"taskId": "T", "pushNotificationConfig": {"id": "p", "url": URL}},
        ),
        (
            "1.0",
            {"taskId": "T", "id": "p", "url": URL, "authentication": {"scheme": "Bearer"}},
            {"taskId": "T", "id": "p", "url": URL},
        ),
    ],
)
def test_a_config_is_shown_without_its_secrets(dialect: str, full: object, bare: object) -> None:
    assert parse(answers.push_config(CONFIG, DIALECTS[dialect], "mine")) == full
    assert parse(answers.push_config(BARE, DIALECTS[dialect], "mine")) == bare


def test_configs_are_a_list_in_0_3_and_an_object_in_1_0() -> None:
    (one,) = parse(answers.push_configs([BARE], DIALECTS["0.3"]))
    assert one == {"taskId": "T", "pushNotificationConfig": {"id": "p", "url": URL}}
    assert parse(answers.push_configs([BARE], DIALECTS["1.0"])) == {
        "configs": [{"taskId": "T", "id": "p", "url": URL}],
        "nextPageToken": "",
    }
    assert answers.push_configs([], DIALECTS["0.3"]) == b"[]"


# --- errors: code in each dialect, REST's status, and the reason in 1.0


@pytest.mark.parametrize(
    ("error", "oldest", "classic", "newest", "status", "reason"),
    [
        (TaskNotFound(), -32001, -32001, -32001, 404, "TASK_NOT_FOUND"),
        (TaskNotCancelable(), -32002, -32002, -32002, 400, "TASK_NOT_CANCELABLE"),
        (PushNotSupported(), -32003, -32003, -32003, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED"),
        (UnsupportedOperation(), -32004, -32004, -32004, 400, "UNSUPPORTED_OPERATION"),
        (TaskOver(), -32004, -32004, -32004, 400, "UNSUPPORTED_OPERATION"),
        (InvalidAnswer("w", "x"), -32006, -32006, -32006, 500, "INVALID_AGENT_RESPONSE"),
        (ExtendedCardNotConfigured(), -32007, -32007, -32004, 400, "UNSUPPORTED_OPERATION"),
        (VersionNotSupported("2.0", ("0.3", "1.0")), -32009, -32009, -32009, 400, "VERSION_NOT_SUPPORTED"),
        (TaskEnded(), -32002, -32602, -32004, 400, "UNSUPPORTED_OPERATION"),
        (PushConfigNotFound(), -32602, -32602, -32001, 404, "TASK_NOT_FOUND"),
    ],
)
def test_an_error_has_its_code_in_each_dialect_and_its_reason_in_1_0(
    error: HubError, oldest: int, classic: int, newest: int, status: int, reason: str
) -> None:
    faults = [fault_of(error, DIALECTS[dialect].faults) for dialect in ("0.1", "0.3", "1.0")]
    assert [fault.code for fault in faults] == [oldest, classic, newest]
    assert [fault.data for fault in faults[:2]] == [None, None]
    last = faults[2]
    assert (last.status, last.data and last.data[0]["reason"]) == (status, reason)
    assert last.data is not None
    assert last.data[0]["domain"] == "a2a-protocol.org"


@pytest.mark.parametrize("dialect", ["0.3", "1.0"])
def test_a_subscription_to_an_ended_task_is_told_the_number_of_its_last_event(dialect: str) -> None:
    data = fault_of(TaskOver(7), DIALECTS[dialect].faults).data
    assert data is not None
    assert data[0]["metadata"] == {"sequence": "7"}


def test_an_error_of_json_rpc_itself_has_no_reason_of_a2a() -> None:
    assert fault_of(InvalidParams(), DIALECTS["1.0"].faults).data is None


@pytest.mark.parametrize(
    ("code_of_worker", "classic", "newest", "status", "reason"),
    [
        (-32001, -32001, -32001, 404, "TASK_NOT_FOUND"),
        (-32005, -32005, -32005, 400, "CONTENT_TYPE_NOT_SUPPORTED"),
        (-32006, -32006, -32006, 500, "INVALID_AGENT_RESPONSE"),
        (-32008, -32004, -32008, 400, "EXTENSION_SUPPORT_REQUIRED"),
        (-32009, -32004, -32009, 400, "VERSION_NOT_SUPPORTED"),
        (-32602, -32602, -32602, 400, None),
        (-32600, -32600, -32600, 400, None),
        (-32601, -32004, -32004, 400, "UNSUPPORTED_OPERATION"),
    ],
)
def test_a_callers_dialect_has_its_code_for_a_workers_specified_error(
    code_of_worker: int, classic: int, newest: int, status: int, reason: str | None
) -> None:
    old, new = (fault_of(WorkerFault(code_of_worker, "its own words"), DIALECTS[dialect].faults) for dialect in ("0.3", "1.0"))
    assert (old.code, old.message, old.data) == (classic, "its own words", None)
    assert (new.code, new.status, new.message) == (newest, status, "its own words")
    assert (new.data and new.data[0]["reason"]) == reason


@pytest.mark.parametrize("code_of_worker", [-32603, -32000, -32099, 0, 1, 500])
def test_any_other_error_of_a_worker_may_hold_its_internals(code_of_worker: int) -> None:
    fault = fault_of(WorkerFault(code_of_worker, "Traceback"), DIALECTS["1.0"].faults)
    assert (fault.code, fault.status, fault.message) == (-32603, 502, "The worker reported an internal error.")
