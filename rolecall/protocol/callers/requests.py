"""Parse the calls of callers, in any dialect, into commands."""

from __future__ import annotations

from typing import Protocol

from rolecall.errors import MethodNotFound
from rolecall.model.a2a import JsonObject
from rolecall.model.command import CancelTask, GetTask, ListTasks, NamePush, Send, SetPush, Subscribe, Target
from rolecall.model.ids import Cursor
from rolecall.model.value import replace
from rolecall.protocol.dialect import V0_1, V0_3, V1_0
from rolecall.protocol.v0_1 import requests as requests01
from rolecall.protocol.v0_3 import requests as requests03
from rolecall.protocol.v1_0 import requests as requests10


class ReadSend(Protocol):
    def __call__(
        self,
        params: JsonObject,
        target: Target,
        *,
        trace: str | None = None,
        key: str | None = None,
        extensions: tuple[str, ...] = (),
    ) -> Send:
        """Changes `params` and keeps it. InvalidParams."""


READ_SEND: dict[str, ReadSend] = {
    V0_1: requests01.read_send,
    V0_3: requests03.read_send,
    V1_0: requests10.read_send,
}


def read_get(params: JsonObject, target: Target, dialect: str | None) -> GetTask:
    return requests10.read_get(params, target) if dialect == V1_0 else requests03.read_get(params, target, dialect)


def read_cancel(params: JsonObject, target: Target, dialect: str | None) -> CancelTask:
    return requests10.read_cancel(params, target) if dialect == V1_0 else requests03.read_cancel(params, target, dialect)


def read_subscribe(params: JsonObject, target: Target, after: Cursor | None, dialect: str | None) -> Subscribe:
    if dialect == V1_0:
        return requests10.read_subscribe(params, target, after)
    return requests03.read_subscribe(params, target, after, dialect)


def read_list(params: JsonObject, target: Target, dialect: str | None) -> ListTasks:
    """In 0.3 only REST has it, without a specified form: its parameters are those of 1.0, its tasks are in 0.3."""
    if dialect == V0_1:
        raise MethodNotFound("tasks/list")
    command = requests10.read_list(params, target)
    return command if dialect == V1_0 else replace(command, dialect=V0_3)


def read_set_push(params: JsonObject, target: Target, dialect: str | None) -> SetPush:
    if dialect == V1_0:
        return requests10.read_set_push(params, target)
    if dialect == V0_1:
        return requests01.read_set_push(params, target)
    return requests03.read_set_push(params, target)


def read_card(params: JsonObject, target: Target, dialect: str | None) -> str | None:
    """The role whose card is requested; None: the hub's own. In 0.3 only the address names it."""
    return requests10.read_card(params, target) if dialect == V1_0 else target.path_role


def read_name_push(params: JsonObject, target: Target, dialect: str | None, *, required: bool = True) -> NamePush:
    """`required`: in 1.0 a single config has to be named by its id."""
    if dialect == V1_0:
        return requests10.read_name_push(params, target, required=required)
    if dialect == V0_1:
        return requests01.read_name_push(params, target)
    return requests03.read_name_push(params, target)
