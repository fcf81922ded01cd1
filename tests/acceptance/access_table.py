"""The access rights, written by hand: every method and address, the right that it needs, and how it names a resource.

Nothing here is read from the hub: the hub's own tables are compared with this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import uuid4

RIGHTS: dict[str, frozenset[str]] = {
    "none": frozenset(),
    "wrong": frozenset(),
    "reader": frozenset({"read"}),
    "owner": frozenset({"read", "call"}),
    "other": frozenset({"read", "call"}),
    "stranger": frozenset({"read", "call"}),
    "worker": frozenset({"read", "enrol"}),
    "admin": frozenset({"read", "call", "enrol", "operate"}),
}


def may(who: str, right: str) -> bool:
    return right == "open" or (right == "card" and who != "wrong") or right in RIGHTS[who]


UNKNOWN_TO = {"none": "401", "wrong": "401"}
CAN_OWN = ("owner", "other", "admin")
"""Holders with tasks: they may call, and their workspace has a live worker."""
HOOK = "http://127.0.0.1:9/hook"

Params = dict[str, Any]


class Named(NamedTuple):
    """One way to name a resource. `params`: the params for an id. `own`: the outcome for the caller's own resource; `others`:
    for a foreign or unknown one. `made`: a foreign or unknown id begins a new resource of the caller. `of`: the kind of
    resource; a role is named by the address.
    """

    params: Callable[[str, str], Params]
    others: str
    own: str = "ok"
    of: str = "task"
    made: bool = False


class Row(NamedTuple):
    right: str
    names: dict[str, Named]


def _message(classic: bool, **members: Any) -> Params:
    part = {"kind": "text", "text": "blue"} if classic else {"text": "blue"}
    role = "user" if classic else "ROLE_USER"
    return {"message": {"role": role, "messageId": str(uuid4()), "parts": [part], **members}}


def _sends(*, classic: bool) -> dict[str, Named]:
    return {
        "task": Named(lambda one, _: _message(classic, taskId=one), "-32001"),
        "context": Named(lambda one, _: _message(classic, contextId=one), "ok", of="context", made=True),
        "reference": Named(lambda one, _: _message(classic, referenceTaskIds=[one]), "-32001"),
    }


_OLD_SEND = {
    "task": Named(
        lambda one, _: {"id": one, "message": {"role": "user", "parts": [{"type": "text", "text": "x"}]}}, "ok", made=True
    )
}
_BY_ID = {"task": Named(lambda one, _: {"id": one}, "-32001")}
_BY_TASK_ID = {"task": Named(lambda one, _: {"taskId": one}, "-32001")}
_LIST = {
    "page token": Named(lambda one, _: {"pageToken": one}, "ok", of="token"),
    "context": Named(lambda one, _: {"contextId": one}, "ok", of="context"),
}
_CONFIG = {"url": HOOK}
_CARD = {"role": Named(lambda *_: {}, "-32000", of="role")}

# `mine`, the second argument, is a task of the caller. The config ids are those of its configs.
METHODS: dict[str, Row] = {
    "tasks/send": Row("call", _OLD_SEND),
    "tasks/sendSubscribe": Row("call", _OLD_SEND),
    "tasks/pushNotification/set": Row(
        "call", {"task": Named(lambda one, _: {"id": one, "pushNotificationConfig": _CONFIG}, "-32001")}
    ),
    "tasks/pushNotification/get": Row("read", _BY_ID),
    "tasks/get": Row("read", _BY_ID),
    "tasks/cancel": Row("call", _BY_ID),
    "tasks/resubscribe": Row("read", _BY_ID),
    "message/send": Row("call", _sends(classic=True)),
    "message/stream": Row("call", _sends(classic=True)),
    "tasks/list": Row("read", _LIST),
    "tasks/pushNotificationConfig/set": Row(
        "call", {"task": Named(lambda one, _: {"taskId": one, "pushNotificationConfig": _CONFIG}, "-32001")}
    ),
    "tasks/pushNotificationConfig/get": Row(
        "read",
        {
            **_BY_ID,
            "config": Named(lambda one, mine: {"id": mine, "pushNotificationConfigId": one}, "-32602", of="config"),
        },
    ),
    "tasks/pushNotificationConfig/list": Row("read", _BY_ID),
    "tasks/pushNotificationConfig/delete": Row(
        "call",
        {
            "task": Named(lambda one, _: {"id": one, "pushNotificationConfigId": "c"}, "-32001"),
            "config": Named(lambda one, mine: {"id": mine, "pushNotificationConfigId": one}, "ok", of="config"),
        },
    ),
    "agent/getAuthenticatedExtendedCard": Row("read", _CARD),
    "agent/authenticatedExtendedCard": Row("read", _CARD),
    "SendMessage": Row("call", _sends(classic=False)),
    "SendStreamingMessage": Row("call", _sends(classic=False)),
    "GetTask": Row("read", _BY_ID),
    "ListTasks": Row("read", _LIST),
    "CancelTask": Row("call", _BY_ID),
    "SubscribeToTask": Row("read", _BY_ID),
    "CreateTaskPushNotificationConfig": Row(
        "call", {"task": Named(lambda one, _: {"taskId": one, "id": "c", "url": HOOK}, "-32001")}
    ),
    "GetTaskPushNotificationConfig": Row(
        "read",
        {
            "task": Named(lambda one, _: {"taskId": one, "id": "c"}, "-32001"),
            "config": Named(lambda one, mine: {"taskId": mine, "id": one}, "-32001", of="config"),
        },
    ),
    "ListTaskPushNotificationConfigs": Row("read", _BY_TASK_ID),
    "DeleteTaskPushNotificationConfig": Row(
        "call",
        {
            "task": Named(lambda one, _: {"taskId": one, "id": "c"}, "-32001"),
            "config": Named(lambda one, mine: {"taskId": mine, "id": one}, "ok", of="config"),
        },
    ),
    "GetExtendedAgentCard": Row("read", _CARD),
}


class Address(NamedTuple):
    """`{id}` in the path, the query or the body names the resource, `{mine}` a task of the caller."""

    method: str
    path: str
    right: str
    others: str = "404"
    own: str = "ok"
    of: str = "task"
    made: bool = False
    body: Callable[[str, str], Params] | None = None


_CONFIGS = "/tasks/{id}/pushNotificationConfigs"
_MINE = "/tasks/{mine}/pushNotificationConfigs/{id}"


def _rest(*, classic: bool) -> list[Address]:
    config: Params = {"pushNotificationConfig": _CONFIG} if classic else _CONFIG
    sends = [
        Address("POST", f"/message:{how}", "call", body=way.params, of=way.of, made=way.made, others=ending)
        for how in ("send", "stream")
        for way in _sends(classic=classic).values()
        for ending in ["404" if way.others == "-32001" else way.others]
    ]
    return [
        *sends,
        Address("GET", "/tasks/{id}", "read"),
        Address("GET", "/tasks?pageToken={id}", "read", of="token", others="ok"),
        Address("GET", "/tasks?contextId={id}", "read", of="context", others="ok"),
        Address("POST", "/tasks/{id}:cancel", "call"),
        Address("GET", "/tasks/{id}:subscribe", "read"),
        Address("POST", "/tasks/{id}:subscribe", "read"),
        Address("POST", _CONFIGS, "call", body=lambda one, mine: config),
        Address("GET", _CONFIGS, "read"),
        Address("GET", f"{_CONFIGS}/c", "read"),
        Address("DELETE", f"{_CONFIGS}/c", "call"),
        Address("GET", _MINE, "read", of="config"),
        Address("DELETE", _MINE, "call", of="config", others="ok"),
        Address("GET", "/extendedAgentCard", "read", of="role"),
    ]


REST: dict[str, list[Address]] = {
    "1.0": _rest(classic=False),
    "0.3": [Address("GET", "/card", "read", of="role"), *_rest(classic=True)],
}
PREFIXES = {"1.0": ("", {"A2A-Version": "1.0"}), "0.3": ("/v1", {})}

_LETTER = "/registry/push/dead-letters/{id}/c/1/redeliver"
_NOTHING = "nothing"

# The hub's own addresses, by their rule in its map. The right "open" means everybody, and "card" all but a wrong token.
OWN: dict[tuple[str, str], list[Address]] = {
    ("GET", "/"): [Address("GET", "/", "read", of=_NOTHING)],
    ("GET", "/livez"): [Address("GET", "/livez", "open", of=_NOTHING)],
    ("GET", "/readyz"): [Address("GET", "/readyz", "open", of=_NOTHING)],
    ("GET", "/health"): [Address("GET", "/health", "open", of=_NOTHING)],
    ("GET", "/metrics"): [Address("GET", "/metrics", "read", of=_NOTHING)],
    ("GET", "/.well-known/ai-catalog.json"): [Address("GET", "/.well-known/ai-catalog.json", "open", of=_NOTHING)],
    ("OPTIONS", "/.well-known/ai-catalog.json"): [Address("OPTIONS", "/.well-known/ai-catalog.json", "open", of=_NOTHING)],
    **{
        ("GET", f"/.well-known/{name}"): [Address("GET", f"/.well-known/{name}", "open", of=_NOTHING)]
        for name in ("agent-card.json", "agent.json")
    },
    **{
        ("GET", f"/agents/<role>/.well-known/{name}"): [Address("GET", f"/agents/{{id}}/.well-known/{name}", "card", of="role")]
        for name in ("agent-card.json", "agent.json")
    },
    ("GET", "/agents/<role>/"): [Address("GET", "/agents/{id}/", "card", of="role")],
    ("GET", "/agents"): [Address("GET", "/agents?cursor={id}", "read", of="agent cursor", others="ok")],
    ("GET", "/registry/agents"): [
        Address("GET", "/registry/agents?cursor={id}", "read", of="agent cursor", others="ok"),
        Address("GET", "/registry/agents?role={id}", "read", of="role", others="ok"),
        Address("GET", "/registry/agents?skill={id}", "read", of="role", others="ok"),
    ],
    ("GET", "/registry/agents/<name>"): [Address("GET", "/registry/agents/{id}", "read", of="worker")],
    ("GET", "/registry/me"): [Address("GET", "/registry/me", "read", of=_NOTHING)],
    ("GET", "/registry/openapi.json"): [Address("GET", "/registry/openapi.json", "read", of=_NOTHING)],
    ("GET", "/registry/events"): [Address("GET", "/registry/events", "read", of="feed")],
    ("PUT", "/registry/agents/<role>/<instance>"): [Address("PUT", "/registry/agents/mine/{id}", "enrol", of="lease")],
    ("POST", "/registry/agents"): [Address("POST", "/registry/agents", "enrol", of="lease")],
    ("POST", "/registry/agents/<name>/heartbeat"): [Address("POST", "/registry/agents/{id}/heartbeat", "enrol", of="lease")],
    ("DELETE", "/registry/agents/<name>"): [Address("DELETE", "/registry/agents/{id}", "enrol", of="lease")],
    ("POST", "/registry/agents/<name>/drain"): [Address("POST", "/registry/agents/{id}/drain", "operate", of="worker")],
    ("POST", "/registry/agents/<name>/undrain"): [Address("POST", "/registry/agents/{id}/undrain", "operate", of="worker")],
    ("POST", "/registry/agents/<name>/probe"): [Address("POST", "/registry/agents/{id}/probe", "operate", of="worker")],
    ("GET", "/registry/tasks"): [
        Address("GET", "/registry/tasks?cursor={id}", "read", of="token", others="ok"),
        Address("GET", "/registry/tasks?context_id={id}", "read", of="context", others="ok"),
        Address("GET", "/registry/tasks?state=input-required,auth-required&context_id={id}", "read", of="context", others="ok"),
        Address("GET", "/registry/tasks?all_holders=true&context_id={id}", "operate", of="any context", others="ok"),
    ],
    ("GET", "/registry/summaries"): [
        Address("GET", "/registry/summaries?cursor={id}", "read", of="token", others="ok"),
        Address("GET", "/registry/summaries?context_id={id}", "read", of="context", others="ok"),
    ],
    ("GET", "/registry/summaries/<task>"): [Address("GET", "/registry/summaries/{id}", "read", own="404")],
    ("DELETE", "/registry/tasks"): [
        Address("DELETE", "/registry/tasks?context_id={id}", "call", of="context", others="ok"),
        Address("DELETE", "/registry/tasks?holder={id}", "operate", of="holder", others="ok"),
    ],
    ("DELETE", "/registry/tasks/<task>"): [
        Address("DELETE", "/registry/tasks/{id}", "call"),
        Address("DELETE", "/registry/tasks/{id}?all_holders=true", "operate", of="any task"),
    ],
    ("POST", "/registry/tasks/<task>/cancel"): [Address("POST", "/registry/tasks/{id}/cancel", "operate", of="any task")],
    ("GET", "/registry/tasks/events"): [Address("GET", "/registry/tasks/events", "read", of="feed")],
    ("GET", "/registry/tasks/<task>/events"): [Address("GET", "/registry/tasks/{id}/events", "read")],
    ("GET", "/registry/tasks/<task>/artifacts/<number>"): [
        # The tasks of these tests wait for an answer, and have no artifact.
        Address("GET", "/registry/tasks/{id}/artifacts/1", "read", own="404"),
    ],
    ("GET", "/registry/tasks/<task>/decision"): [Address("GET", "/registry/tasks/{id}/decision", "read")],
    ("GET", "/registry/tasks/<task>/tree"): [Address("GET", "/registry/tasks/{id}/tree", "read")],
    ("POST", "/registry/files"): [Address("POST", "/registry/files", "call", of=_NOTHING)],
    ("GET", "/registry/files/<file>"): [
        Address("GET", "/registry/files/{id}", "read", of="file"),
        Address("HEAD", "/registry/files/{id}", "read", of="file"),
    ],
    # A file that is complete takes no more bytes.
    ("PATCH", "/registry/files/<file>"): [Address("PATCH", "/registry/files/{id}", "call", of="file", own="409")],
    ("DELETE", "/registry/files/<file>"): [Address("DELETE", "/registry/files/{id}", "call", of="file")],
    ("GET", "/registry/usage"): [
        Address("GET", "/registry/usage", "read", of=_NOTHING),
        Address("GET", "/registry/usage?holder={id}", "operate", of="holder", others="ok"),
    ],
    ("GET", "/registry/push/dead-letters"): [
        Address("GET", "/registry/push/dead-letters?cursor={id}", "read", of="letter cursor", others="ok"),
    ],
    ("POST", "/registry/push/dead-letters/<task>/<config>/<cursor>/redeliver"): [
        Address("POST", _LETTER, "operate", of="letter task"),
    ],
}
