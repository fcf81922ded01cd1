"""The dialect of the answer if the method name belongs to several dialects."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from rolecall.model.command import CancelTask, GetTask, Subscribe, Target, TaskQuery
from rolecall.model.ids import TaskId
from rolecall.protocol.dialects import DIALECTS
from rolecall.protocol.text.jsontext import parse
from tests.flow.conftest import CALLER, System
from tests.helpers import scripted

MESSAGES: dict[str, dict[str, Any]] = {
    "0.1": {"id": "mine", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}},
    "0.3": {"message": {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}},
    "1.0": {"message": {"role": "ROLE_USER", "messageId": "m", "parts": [{"text": "hi"}]}},
}
MARKS = {"0.1": "sessionId", "0.3": "kind"}


async def begun_in(dialect: str, system: System) -> TaskId:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", scripted.task("input-required"))
    system.forwarder.plan_fetch("echo:a", scripted.task("canceled"))
    await system.hub.send(CALLER, DIALECTS[dialect].requests.read_send(deepcopy(MESSAGES[dialect]), Target(path_role="echo")))
    (row,) = (await system.engine.tasks.page(CALLER, TaskQuery())).rows
    return row.id


def spelled_in(document: dict[str, Any]) -> str:
    return next((dialect for dialect, mark in MARKS.items() if mark in document), "1.0")


@pytest.mark.parametrize(("begun", "answered"), [("0.1", "0.1"), ("0.3", "0.3"), ("1.0", "0.3")])
async def test_a_method_that_0_1_and_0_3_share_is_never_answered_in_1_0(system: System, begun: str, answered: str) -> None:
    task = await begun_in(begun, system)
    assert spelled_in(parse((await system.hub.get(CALLER, GetTask(Target(), task, ("0.1", "0.3")))).body)) == answered
    task_stream = await system.hub.subscribe(CALLER, Subscribe(Target(), task, ("0.1", "0.3")))
    assert task_stream.dialect == answered
    task_stream.close()
    assert spelled_in(parse((await system.hub.cancel(CALLER, CancelTask(Target(), task, ("0.1", "0.3")))).body)) == answered
    # It has ended: 0.3 returns it once more, 1.0 would refuse.
    assert (await system.hub.subscribe(CALLER, Subscribe(Target(), task, ("0.1", "0.3")))).dialect == answered


@pytest.mark.parametrize("begun", MESSAGES)
async def test_a_method_that_all_dialects_share_is_answered_in_the_tasks_own_dialect(system: System, begun: str) -> None:
    task = await begun_in(begun, system)
    assert spelled_in(parse((await system.hub.get(CALLER, GetTask(Target(), task, ()))).body)) == begun


@pytest.mark.parametrize("begun", MESSAGES)
@pytest.mark.parametrize("asked", ["0.3", "1.0"])
async def test_a_caller_that_names_its_dialect_gets_it(system: System, begun: str, asked: str) -> None:
    task = await begun_in(begun, system)
    assert spelled_in(parse((await system.hub.get(CALLER, GetTask(Target(), task, (asked,)))).body)) == asked
