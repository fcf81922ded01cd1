"""From the log to real receivers: every event, in order, in the dialect of its config."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from hub.identity.vault import SealingVault, random_key
from hub.outbound.client import Client
from hub.outbound.webhook_guard import WebhookGuard
from rolecall.model.card import SEQUENCE_EXTENSION
from rolecall.model.ids import TaskId
from tests.flow.conftest import System
from tests.flow.push.conftest import (
    BODY_COMPLETE,
    DONE,
    HOSTS,
    QUICK,
    Post,
    a_task,
    advance_until,
    logged,
    post_of,
    still_holds,
    until,
)
from tests.helpers.receiver import Receiver
from tests.helpers.scripted import chunk, message, task


async def test_a_receiver_gets_each_event(post: Post, system: System, receiver: Receiver) -> None:
    mine = await a_task(system)
    await post.set(mine, receiver.url)
    await logged(system, mine, task("working"), chunk("a "), chunk("b "))
    await logged(system, mine, DONE)
    await until(lambda: len(receiver.got) == 4)
    assert receiver.cursors == [1, 2, 3, 4]
    assert receiver.ids[0] == f"{mine}.c.1"
    assert [next(iter(body)) for body in receiver.bodies] == ["task", "artifactUpdate", "artifactUpdate", "statusUpdate"]
    await still_holds(lambda: len(receiver.got) == 4)
    assert post.observer.outcomes == ["delivered"] * 4


async def test_a_receiver_of_whole_tasks_gets_the_newest_that_it_is_owed(
    post: Post, system: System, receiver: Receiver
) -> None:
    mine = await a_task(system)
    await post.set(mine, receiver.url, dialect="0.3")
    await logged(system, mine, task("working"), chunk("a "), chunk("b "))
    await until(lambda: receiver.cursors == [3])
    await logged(system, mine, chunk("c "), DONE)
    await until(lambda: len(receiver.got) == 2)
    assert receiver.ids == [f"{mine}.c.3", f"{mine}.c.5"]
    assert [body["status"]["state"] for body in receiver.bodies] == ["working", "completed"]
    texts = [[part["text"] for a in body.get("artifacts", []) for part in a["parts"]] for body in receiver.bodies]
    assert texts == [["a ", "b "], ["a ", "b ", "c "]]
    assert {body["id"] for body in receiver.bodies} == {mine}
    await still_holds(lambda: len(receiver.got) == 2)
    assert post.observer.outcomes == ["delivered"] * 2


@pytest.mark.parametrize(("dialect", "inside"), [("0.1", ()), ("0.3", ()), ("1.0", ("task", "artifactUpdate", "statusUpdate"))])
async def test_a_receiver_that_wants_numbers_gets_them(
    post: Post, system: System, receiver: Receiver, dialect: str, inside: tuple[str, ...]
) -> None:
    mine, other = await a_task(system), await a_task(system)
    await post.set(mine, receiver.url, dialect=dialect, numbers=True)
    await post.set(other, receiver.url, dialect=dialect)
    for one in (mine, other):
        await logged(system, one, task("working"), chunk("a "), DONE)
    await until(lambda: {f"{one}.c.3" for one in (mine, other)} <= set(receiver.ids))
    for name, body in zip(receiver.ids, receiver.bodies, strict=True):
        document = next((body[member] for member in inside if member in body), body)
        own = (document.get("metadata") or {}).get(SEQUENCE_EXTENSION)
        assert own == ({"sequence": int(name.rpartition(".")[2])} if name.startswith(mine) else None), name


async def test_two_thousand_chunks_are_not_two_thousand_growing_tasks(post: Post, system: System, receiver: Receiver) -> None:
    mine = await a_task(system)
    await post.set(mine, receiver.url, dialect="0.3")
    await logged(system, mine, task("working"))
    for _ in range(20):
        await logged(system, mine, *(chunk("x" * 100) for _ in range(100)))
    await logged(system, mine, DONE)
    await until(lambda: receiver.cursors[-1:] == [2002])
    assert receiver.cursors == sorted(set(receiver.cursors))
    whole = len(receiver.got[-1].body)
    assert sum(len(got.body) for got in receiver.got) < 20 * whole
    assert len([part for a in receiver.bodies[-1]["artifacts"] for part in a["parts"]]) == 2000


async def test_a_whole_task_that_was_refused_is_sent_again_as_it_is_then(
    post: Post, system: System, receiver: Receiver
) -> None:
    mine = await a_task(system)
    receiver.then(503)
    await post.set(mine, receiver.url, dialect="0.3")
    await logged(system, mine, task("working"))
    await until(lambda: receiver.cursors == [1])
    await logged(system, mine, chunk("a "), DONE)
    await advance_until(post, lambda: len(receiver.got) > 1)
    assert receiver.cursors == [1, 3]
    await still_holds(lambda: len(receiver.got) == 2)


@pytest.mark.parametrize("dialect", ["0.1", "1.0"])
async def test_each_config_gets_its_own_dialect(post: Post, system: System, receiver: Receiver, dialect: str) -> None:
    mine = await a_task(system)
    await post.set(mine, receiver.url, dialect=dialect)
    await post.set(mine, receiver.url, "other", dialect="0.3")
    await logged(system, mine, task("working"), DONE)
    await until(lambda: len(receiver.got) == 3)
    own = [body for name, body in zip(receiver.ids, receiver.bodies, strict=True) if ".c." in name]
    other = [body for name, body in zip(receiver.ids, receiver.bodies, strict=True) if ".other." in name]
    assert [body["kind"] for body in other] == ["task"]
    assert [sorted(body) for body in own] == (
        [["task"], ["statusUpdate"]] if dialect == "1.0" else [["eventType", "status", "taskId", "timestamp"]] * 2
    )


async def test_a_receiver_that_is_set_after_the_end_gets_the_end_at_once(
    post: Post, system: System, receiver: Receiver
) -> None:
    mine = await a_task(system)
    await logged(system, mine, task("working"), chunk("a"), DONE)
    await post.set(mine, receiver.url, dialect="0.3")
    await until(lambda: receiver.cursors == [3])
    assert receiver.bodies[0]["status"]["state"] == "completed"


async def test_a_whole_call_through_the_hub_is_delivered(post: Post, system: System, receiver: Receiver) -> None:
    """The worker cannot stream; its caller gets notifications all the same."""
    await system.enrol("echo:a", streaming=False)
    system.forwarder.plan("echo:a", task("input-required", "which?"))
    system.forwarder.plan(
        "echo:a", task("completed", "this", artifacts=[{"artifactId": "a", "parts": [{"kind": "text", "text": "x"}]}])
    )
    asked = await system.send()
    await post.set(TaskId(asked["id"]), receiver.url, dialect="0.3")
    answered = await system.send("blue", taskId=asked["id"])
    await until(lambda: bool(receiver.got) and receiver.bodies[-1]["status"]["state"] == "completed")
    assert receiver.cursors == sorted(set(receiver.cursors))
    assert receiver.bodies[-1] == answered


async def test_a_long_log_is_delivered_from_beginning_to_end(post: Post, system: System, receiver: Receiver) -> None:
    """Long enough for notices that are made in a thread."""
    mine = await a_task(system)
    await post.set(mine, receiver.url)
    await post.set(mine, receiver.url, "whole", dialect="0.3")
    await logged(system, mine, task("working"), *(chunk("x" * 30_000) for _ in range(12)), DONE)
    await until(lambda: len(receiver.got) == 15)
    events = [int(name.rpartition(".")[2]) for name in receiver.ids if ".c." in name]
    assert events == list(range(1, 15))
    assert [len(got.body) > 12 * 30_000 for got in receiver.got].count(True) == 1


async def test_after_some_seconds_another_receiver_gets_its_turn(system: System, receiver: Receiver) -> None:
    guard = WebhookGuard(HOSTS, [], [])
    async with Client(guard) as client:
        post = post_of(system, client, guard, replace(QUICK, at_once=1), vault=SealingVault(random_key()))
        busy, other = await a_task(system), await a_task(system)
        hold = system.engine.hold("pushes.delivered")
        await post.set(busy, receiver.url)
        await logged(system, busy, task("working"), chunk("a"), DONE)
        await asyncio.wait_for(hold.reached.wait(), 5)
        await post.set(other, receiver.url.replace("127.0.0.1", "localhost"))
        await logged(system, other, BODY_COMPLETE)
        system.clock.advance(6)
        hold.release()
        await until(lambda: len(receiver.got) == 4)
        await post.supervisor.close()
    assert receiver.ids == [f"{busy}.c.1", f"{busy}.c.2", f"{other}.c.1", f"{busy}.c.3"]


async def test_a_bare_message_is_not_delivered(post: Post, system: System, receiver: Receiver) -> None:
    mine = await a_task(system)
    await post.set(mine, receiver.url)
    await logged(system, mine, message("hello"))
    await still_holds(lambda: not receiver.got)
