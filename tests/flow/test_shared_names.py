"""In which dialect a task is answered for, where what was asked leaves that open."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from rolecall.model.command import ITS_OWN, CancelTask, GetTask, Subscribe, Target, TaskQuery
from rolecall.model.ids import TaskId
from rolecall.protocol.callers.requests import READ_SEND
from rolecall.protocol.text.jsontext import parse
from tests.flow.conftest import ME, House
from tests.helpers import scripted

MESSAGES: dict[str, dict[str, Any]] = {
    "0.1": {"id": "mine", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}},
    "0.3": {"message": {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "hi"}]}},
    "1.0": {"message": {"role": "ROLE_USER", "messageId": "m", "parts": [{"text": "hi"}]}},
}
MARKS = {"0.1": "sessionId", "0.3": "kind"}


async def begun_in(dialect: str, house: House) -> TaskId:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", scripted.task("input-required"))
    house.forwarder.plan_fetch("echo:a", scripted.task("canceled"))
    await house.hub.send(ME, READ_SEND[dialect](deepcopy(MESSAGES[dialect]), Target(path_role="echo")))
    (row,) = (await house.engine.tasks.page(ME, TaskQuery())).rows
    return row.id


def spelled_in(document: dict[str, Any]) -> str:
    return next((dialect for dialect, mark in MARKS.items() if mark in document), "1.0")


@pytest.mark.parametrize(("begun", "answered"), [("0.1", "0.1"), ("0.3", "0.3"), ("1.0", "0.3")])
async def test_a_name_that_0_1_and_0_3_share_is_never_answered_in_1_0(house: House, begun: str, answered: str) -> None:
    task = await begun_in(begun, house)
    assert spelled_in(parse((await house.hub.get(ME, GetTask(Target(), task, None))).body)) == answered
    task_stream = await house.hub.subscribe(ME, Subscribe(Target(), task, None))
    assert task_stream.dialect == answered
    task_stream.close()
    assert spelled_in(parse((await house.hub.cancel(ME, CancelTask(Target(), task, None))).body)) == answered
    # It has ended: 0.3 shows it once more, where 1.0 would refuse.
    assert (await house.hub.subscribe(ME, Subscribe(Target(), task, None))).dialect == answered


@pytest.mark.parametrize("begun", MESSAGES)
async def test_a_name_that_all_share_is_answered_in_the_tasks_own_dialect(house: House, begun: str) -> None:
    task = await begun_in(begun, house)
    assert spelled_in(parse((await house.hub.get(ME, GetTask(Target(), task, ITS_OWN))).body)) == begun


@pytest.mark.parametrize("begun", MESSAGES)
@pytest.mark.parametrize("asked", ["0.3", "1.0"])
async def test_who_says_what_he_speaks_gets_that(house: House, begun: str, asked: str) -> None:
    task = await begun_in(begun, house)
    assert spelled_in(parse((await house.hub.get(ME, GetTask(Target(), task, asked))).body)) == asked
