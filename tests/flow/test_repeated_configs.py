"""A repeated message that has a push config sets the config again. What each receiver is owed then, on every engine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rolecall.errors import InvalidParams, KeyConflict, TooManyPushConfigs, WebhookRejected
from rolecall.model.command import Send, Target
from rolecall.model.ids import TaskId
from rolecall.model.push import PushConfig
from rolecall.model.value import replace
from rolecall.protocol.text.jsontext import parse
from rolecall.protocol.v0_1 import requests as v01
from tests.contract.pushing import NOTHING, claimed
from tests.flow.conftest import CALLER, System, frames, say
from tests.helpers.scripted import Hold, chunk, message, status, task

FIRST, SECOND = "http://127.0.0.1/first", "http://127.0.0.1/second"


def with_config(url: str, name: str = "", **members: Any) -> Send:
    return replace(say(messageId="m", **members), push=PushConfig(TaskId(""), name, url, "0.3"))


async def sent(system: System, send: Send) -> dict[str, Any]:
    answer: dict[str, Any] = parse((await system.hub.send(CALLER, send)).body)
    return answer


async def delivered_to(system: System) -> dict[str, tuple[int, int]]:
    """Deliver all that is owed; by URL, from which event on and up to which."""
    found: dict[str, tuple[int, int]] = {}
    for claim in await claimed(system.engine):
        found[claim.config.url] = (claim.sent + 1, claim.last)
        await system.engine.pushes.delivered(claim, claim.last, hold=NOTHING)
    return found


@pytest.mark.parametrize(("url", "name"), [(FIRST, ""), (SECOND, ""), (SECOND, "other")])
async def test_a_repeat_after_the_end_brings_its_receiver_the_end(stored_system: System, url: str, name: str) -> None:
    """Also to one whose last delivery was lost on the way."""
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task(), chunk("x", append=False), status("completed"))
    first = await sent(stored_system, with_config(FIRST))
    assert await delivered_to(stored_system) == {FIRST: (1, 3)}
    assert await sent(stored_system, with_config(url, name)) == first
    assert await delivered_to(stored_system) == {url: (3, 3)}
    configs = await stored_system.engine.pushes.list(CALLER, TaskId(first["id"]))
    assert [(one.id, one.url) for one in configs] == ([(first["id"], FIRST), (name, url)] if name else [(first["id"], url)])


async def test_a_repeat_that_is_the_first_with_a_config_sets_it(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task(), status("completed"))
    first = await stored_system.send(messageId="m")
    assert await sent(stored_system, with_config(FIRST)) == first
    assert await delivered_to(stored_system) == {FIRST: (2, 2)}


async def test_a_streamed_repeat_sets_its_config_too(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task(), status("completed"))
    await sent(stored_system, with_config(FIRST))
    await delivered_to(stored_system)
    await frames(await stored_system.hub.stream(CALLER, with_config(SECOND)))
    assert await delivered_to(stored_system) == {SECOND: (2, 2)}


async def test_a_repeat_while_the_task_runs_brings_the_newest_event_and_those_that_follow(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    hold = Hold()
    stored_system.forwarder.plan("echo:a", task(), chunk("x", append=False), hold, status("completed"))
    first = asyncio.create_task(sent(stored_system, with_config(FIRST)))
    await hold.reached.wait()
    assert await delivered_to(stored_system) == {FIRST: (1, 2)}
    repeat = asyncio.create_task(sent(stored_system, with_config(SECOND, "other")))
    again = asyncio.create_task(sent(stored_system, with_config(FIRST)))
    await asyncio.sleep(0.1)
    assert await delivered_to(stored_system) == {FIRST: (2, 2), SECOND: (2, 2)}
    hold.release()
    assert await repeat == await again == await first
    assert await delivered_to(stored_system) == {FIRST: (3, 3), SECOND: (3, 3)}


async def test_a_repeat_of_a_task_that_waits_for_input_brings_the_question(stored_system: System) -> None:
    """Nothing follows it until somebody answers."""
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task(), status("input-required", "which?"))
    await stored_system.send(messageId="m")
    await sent(stored_system, with_config(SECOND))
    assert await delivered_to(stored_system) == {SECOND: (2, 2)}


async def test_a_repeat_while_the_first_is_stored_brings_every_event(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task(), status("completed"))
    hold = stored_system.engine.hold_after("tasks.admit")
    first = asyncio.create_task(sent(stored_system, with_config(FIRST)))
    await hold.reached.wait()
    repeat = asyncio.create_task(sent(stored_system, with_config(SECOND)))
    await asyncio.sleep(0.1)
    hold.release()
    assert await repeat == await first
    (config,) = await stored_system.engine.pushes.list(CALLER, TaskId((await first)["id"]))
    assert config.url == SECOND
    assert len(await stored_system.rows()) == 1
    assert (await delivered_to(stored_system))[SECOND][1] == 2


async def test_a_repeat_after_a_restart_sets_its_config(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task(), status("completed"))
    first = await sent(stored_system, with_config(FIRST))
    await delivered_to(stored_system)
    await stored_system.restart()
    assert await sent(stored_system, with_config(SECOND)) == first
    assert await delivered_to(stored_system) == {SECOND: (2, 2)}


async def test_a_repeated_answer_sets_its_config_on_the_task_that_it_answers(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task(), status("input-required", "which?"))
    stored_system.forwarder.plan("echo:a", status("working"), status("completed"))
    asked = await stored_system.send(messageId="question")
    answered = await sent(stored_system, with_config(FIRST, taskId=asked["id"]))
    await delivered_to(stored_system)
    assert await sent(stored_system, with_config(SECOND, taskId=asked["id"])) == answered
    assert await delivered_to(stored_system) == {SECOND: (4, 4)}


async def test_a_repeat_under_the_callers_own_id_sets_its_config(stored_system: System) -> None:
    """In 0.1 the task's id is the name of the call."""

    def named(url: str) -> Send:
        params = {"id": "mine", "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}}
        return v01.read_send({**params, "pushNotification": {"url": url}}, Target(path_role="echo"))

    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", [task(), status("completed")])
    first = await sent(stored_system, named(FIRST))
    await delivered_to(stored_system)
    assert await sent(stored_system, named(SECOND)) == first
    assert await delivered_to(stored_system) == {SECOND: (2, 2)}


async def test_a_repeat_with_a_refused_url_is_refused_and_changes_nothing(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task(), status("completed"))
    first = await sent(stored_system, with_config(FIRST))
    await delivered_to(stored_system)
    with pytest.raises(WebhookRejected):
        await sent(stored_system, with_config("https://10.0.0.1/"))
    (config,) = await stored_system.engine.pushes.list(CALLER, TaskId(first["id"]))
    assert config.url == FIRST
    assert await delivered_to(stored_system) == {}
    assert (await stored_system.send(messageId="m")) == first


async def test_a_repeat_may_add_no_more_configs_than_a_task_can_have(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task(), status("completed"))
    for number in range(10):
        await sent(stored_system, with_config(FIRST, f"{number}"))
    with pytest.raises(TooManyPushConfigs):
        await sent(stored_system, with_config(FIRST, "more"))


async def test_other_content_under_a_known_key_sets_nothing(stored_system: System) -> None:
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", task(), status("completed"))
    first = await sent(stored_system, with_config(FIRST, key="k"))
    with pytest.raises(KeyConflict):
        await sent(stored_system, with_config(SECOND, key="k", text="other words"))
    (config,) = await stored_system.engine.pushes.list(CALLER, TaskId(first["id"]))
    assert config.url == FIRST


async def test_a_repeat_of_a_message_that_was_answered_by_a_bare_one_gets_that(stored_system: System) -> None:
    """There is no task that a receiver could follow."""
    await stored_system.enrol("echo:a")
    stored_system.forwarder.plan("echo:a", message("yes"))
    first = await sent(stored_system, with_config(FIRST))
    assert await sent(stored_system, with_config(SECOND)) == first
    assert await delivered_to(stored_system) == {}


async def test_a_repeat_of_a_call_that_fails_gets_its_error(stored_system: System) -> None:
    """Also if the call is taken back before the config is set."""
    await stored_system.enrol("echo:a")
    hold = stored_system.engine.hold("pushes.list")
    stored_system.forwarder.plan("echo:a", 1.0, InvalidParams("no"))
    first = asyncio.create_task(sent(stored_system, with_config(FIRST)))
    await asyncio.sleep(0.1)
    repeat = asyncio.create_task(sent(stored_system, with_config(SECOND)))
    with pytest.raises(InvalidParams, match="no"):
        await first
    hold.release()
    with pytest.raises(InvalidParams, match="no"):
        await repeat
