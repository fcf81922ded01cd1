"""Every method's name: what it asks for, and which dialect it belongs to."""

from __future__ import annotations

import pytest

from rolecall.errors import MethodNotFound, VersionNotSupported
from rolecall.protocol.dialects import DIALECTS, Choice, dialect_of, read_method, read_version
from rolecall.protocol.methods import Operation

TABLE: dict[Operation, dict[str, str | None]] = {
    Operation.SEND: {"tasks/send": "0.1", "message/send": "0.3", "SendMessage": "1.0"},
    Operation.STREAM: {"tasks/sendSubscribe": "0.1", "message/stream": "0.3", "SendStreamingMessage": "1.0"},
    Operation.GET: {"tasks/get": None, "GetTask": "1.0"},
    Operation.LIST: {"tasks/list": "0.3", "ListTasks": "1.0"},
    Operation.CANCEL: {"tasks/cancel": None, "CancelTask": "1.0"},
    Operation.SUBSCRIBE: {"tasks/resubscribe": None, "SubscribeToTask": "1.0"},
    Operation.PUSH_SET: {
        "tasks/pushNotification/set": "0.1",
        "tasks/pushNotificationConfig/set": "0.3",
        "CreateTaskPushNotificationConfig": "1.0",
    },
    Operation.PUSH_GET: {
        "tasks/pushNotification/get": "0.1",
        "tasks/pushNotificationConfig/get": "0.3",
        "GetTaskPushNotificationConfig": "1.0",
    },
    Operation.PUSH_LIST: {"tasks/pushNotificationConfig/list": "0.3", "ListTaskPushNotificationConfigs": "1.0"},
    Operation.PUSH_DELETE: {"tasks/pushNotificationConfig/delete": "0.3", "DeleteTaskPushNotificationConfig": "1.0"},
    Operation.CARD: {
        "agent/getAuthenticatedExtendedCard": "0.3",
        "agent/authenticatedExtendedCard": "0.3",
        "GetExtendedAgentCard": "1.0",
    },
}
METHODS = [(name, operation, dialect) for operation, names in TABLE.items() for name, dialect in names.items()]


def test_every_operation_has_a_name() -> None:
    assert TABLE.keys() == set(Operation)


@pytest.mark.parametrize(("name", "operation", "dialect"), METHODS)
@pytest.mark.parametrize("version", [None, "", "0.1", "0.3", "0.3.0", "1.0", "1.0.1", " 1.0 "])
def test_the_name_decides_and_a_version_picks_only_where_names_are_shared(
    name: str, operation: Operation, dialect: str | None, version: str | None
) -> None:
    requested = {"0.1": "0.1", "0.3": "0.3"}.get((version or "")[:3])
    only = dialect or requested
    assert read_method(name, version) == (operation, Choice(DIALECTS[only or "0.3"], (only,) if only else ("0.1", "0.3")))
    assert dialect_of(name) is DIALECTS[dialect or "0.3"]


@pytest.mark.parametrize("name", ["", "sing", "message/Send", "sendMessage", "tasks/get ", "GetTask\0", "x" * 1000])
def test_an_unknown_name_is_not_found_and_quoted_in_part_only(name: str) -> None:
    with pytest.raises(MethodNotFound) as refusal:
        read_method(name, "1.0")
    assert refusal.value.message == f"Method not found: {name[:100]}"
    assert dialect_of(name) is DIALECTS["0.3"]


OTHERS = ["0", "0.2", "0.2.6", "0.4", "0.15", "1", "1.1", "1.1.0", "2", "2.0", "10.0"]
INVALID = ["v1", "one", "-1", "1,0", "\ufffd", "00.3", "1 .0x", "1.0.", "1.0.x", "1.0-rc", "1.0, 0.3", "1.0, 1.1", "\u0661.0"]


@pytest.mark.parametrize("version", [*OTHERS, *INVALID])
def test_a_version_that_is_not_one_of_ours_is_refused(version: str) -> None:
    with pytest.raises(VersionNotSupported) as refusal:
        read_method("GetTask", version)
    named = ", ".join(part.strip() for part in version.split(","))
    assert refusal.value.message == f"A2A version {named!r} is not supported. Use 0.1, 0.3 or 1.0."


@pytest.mark.parametrize(
    ("requested", "dialect"),
    [
        ("0.1", "0.1"),
        ("0.1.0", "0.1"),
        ("0.3", "0.3"),
        ("0.3.0", "0.3"),
        ("1.0", "1.0"),
        ("1.0.1", "1.0"),
        ("1.0, 1.0", "1.0"),
        ("1.0,1.0.2", "1.0"),
        ("", None),
        (" , ", None),
        (None, None),
    ],
)
def test_major_and_minor_number_decide_and_a_patch_number_does_not(requested: str | None, dialect: str | None) -> None:
    assert read_version(requested) == dialect
