"""A context stays with the worker that holds it."""

from __future__ import annotations

import pytest

from rolecall.errors import WorkerBusy
from rolecall.model.ids import TaskId
from rolecall.model.worker import Health
from tests.flow.conftest import House
from tests.flow.relayed import end, reaches
from tests.helpers.scripted import status, task


async def test_a_conversation_stays_with_its_worker(house: House) -> None:
    await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed"))
    first = await house.send()
    for name in ("echo:b", "echo:c", "echo:d"):
        await house.enrol(name)
    for _ in range(5):
        house.forwarder.plan("echo:a", task("completed"))
        again = await house.send(contextId=first["contextId"])
        assert again["contextId"] == first["contextId"]
        assert again["id"] != first["id"]
    assert set(house.forwarder.asked("deliver")) == {"echo:a"}
    assert house.forwarder.calls[-1][2].ids.worker_context == "wc"


async def test_a_conversation_whose_worker_is_gone_goes_to_another_and_the_decision_says_so(house: House) -> None:
    lease = await house.enrol("echo:a")
    house.forwarder.plan("echo:a", task("completed"))
    first = await house.send()
    await house.enrol("echo:b")
    await house.engine.registry.mark("default", lease.worker, lease.epoch, Health.DRAINING, "test")
    house.forwarder.plan("echo:b", task("completed"))
    answer = await house.send(contextId=first["contextId"])
    decision = house.hub.decisions.of(TaskId(answer["id"]))
    assert decision is not None
    assert (str(decision.worker), decision.rule) == ("echo:b", "context holder gone")


async def test_a_busy_holder_of_a_conversation_is_not_a_gone_one(house: House) -> None:
    await house.enrol("echo:a", capacity=1)
    house.forwarder.plan("echo:a", task("completed"))
    first = await house.send()
    await house.enrol("echo:b")
    running, hold = await reaches(house, task(), then=(status("completed"),), contextId=first["contextId"])
    with pytest.raises(WorkerBusy):
        await house.send(contextId=first["contextId"])
    hold.release()
    assert end(await running) == ("completed", "")
