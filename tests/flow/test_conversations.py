"""A context stays with the worker that holds it."""

from __future__ import annotations

import pytest

from rolecall.errors import WorkerBusy
from rolecall.model.ids import TaskId
from rolecall.model.worker import Health
from tests.flow.conftest import System
from tests.flow.relayed import end, reaches
from tests.helpers.scripted import status, task


async def test_a_conversation_stays_with_its_worker(system: System) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("completed"))
    first = await system.send()
    for name in ("echo:b", "echo:c", "echo:d"):
        await system.enrol(name)
    for _ in range(5):
        system.forwarder.plan("echo:a", task("completed"))
        again = await system.send(contextId=first["contextId"])
        assert again["contextId"] == first["contextId"]
        assert again["id"] != first["id"]
    assert set(system.forwarder.asked("deliver")) == {"echo:a"}
    assert system.forwarder.calls[-1][2].ids.worker_context == "wc"


async def test_a_conversation_whose_worker_is_gone_moves_to_another_and_the_decision_records_it(system: System) -> None:
    lease = await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("completed"))
    first = await system.send()
    await system.enrol("echo:b")
    await system.engine.registry.mark("default", lease.worker, lease.epoch, Health.DRAINING, "test")
    system.forwarder.plan("echo:b", task("completed"))
    answer = await system.send(contextId=first["contextId"])
    decision = system.hub.decisions.of(TaskId(answer["id"]))
    assert decision is not None
    assert (str(decision.worker), decision.rule) == ("echo:b", "context holder gone")


async def test_a_busy_holder_of_a_conversation_keeps_it(system: System) -> None:
    await system.enrol("echo:a", capacity=1)
    system.forwarder.plan("echo:a", task("completed"))
    first = await system.send()
    await system.enrol("echo:b")
    running, hold = await reaches(system, task(), then=(status("completed"),), contextId=first["contextId"])
    with pytest.raises(WorkerBusy):
        await system.send(contextId=first["contextId"])
    hold.release()
    assert end(await running) == ("completed", "")
