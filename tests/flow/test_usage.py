"""What workers report of usage is summed once, whatever happens on its way into the log."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from hub.core.tasks import erasure
from rolecall.errors import StoreUnavailable
from rolecall.model.a2a import WorkerEvent
from rolecall.model.card import USAGE_EXTENSION
from rolecall.model.ids import TaskId
from rolecall.model.usage import DAY, Usage, UsageQuery, read_reports
from tests.flow.conftest import CALLER, System, hub_limits
from tests.flow.relayed import CUT, end, reaches
from tests.helpers.scripted import Step, chunk, message, status, task
from tests.helpers.watched_engine import Hold

ONE = Usage("small", 100, 20, 500_000, "USD")


def metadata(*reports: Any) -> dict[str, Any]:
    return {USAGE_EXTENSION: list(reports) if len(reports) > 1 else reports[0]}


def reports(state: str = "working", *, position: str | None = None, count: int = 1) -> WorkerEvent:
    """A status update that reports ONE so many times."""
    return status(state, position=position, metadata=metadata(*[ONE.document()] * count))


def times(count: int) -> list[Usage]:
    return [Usage("small", 100 * count, 20 * count, 500_000 * count, "USD")] if count else []


async def summed(system: System, task_id: str) -> list[Usage]:
    """Of the task, which are also those of the day: each test has one task."""
    found = list((await system.engine.usage.of_tasks([TaskId(task_id)])).get(TaskId(task_id), ()))
    (day,) = await system.engine.usage.of_days(UsageQuery("default", ("role", "holder"))) or [None]
    if day is not None:
        assert day.names == ("echo", "local")
        assert day.input_tokens == sum(one.input_tokens for one in found)
        assert sum(day.costs.values()) == sum(one.nanos for one in found)
    return found


async def done(system: System, *steps: Step, **offer: Any) -> dict[str, Any]:
    """The task that a worker that plays these steps ends with."""
    await system.enrol("echo:a", **offer)
    system.forwarder.plan("echo:a", *steps)
    answer: dict[str, Any] = await system.send()
    return answer


@pytest.mark.parametrize("replays", [False, True])
async def test_reports_are_summed_and_shown_in_the_task(stored_system: System, replays: bool) -> None:
    answer = await done(stored_system, task(), reports(), chunk("x"), reports(count=2), reports("completed"), replays=replays)
    assert end(answer) == ("completed", "")
    assert await summed(stored_system, answer["id"]) == times(4)
    assert list(read_reports(answer["metadata"][USAGE_EXTENSION]).usage) == times(4)
    assert stored_system.observer.used_by == {"echo": [ONE, ONE, ONE, ONE]}


async def test_a_malformed_report_is_dropped_and_counted_and_the_task_goes_on(system: System) -> None:
    wrong = status("working", "reading", metadata=metadata({"inputTokens": -1}) | {"other": 1})
    partly = status("working", metadata=metadata(ONE.document(), "much"))
    answer = await done(system, task(), wrong, partly, status("completed"))
    assert end(answer) == ("completed", "")
    assert await summed(system, answer["id"]) == times(1)
    assert system.observer.drops == {"malformed usage": 2}
    assert answer["metadata"] == {"other": 1, USAGE_EXTENSION: [ONE.document()]}


async def test_what_comes_after_the_end_does_not_count(system: System) -> None:
    answer = await done(system, task(), [reports("completed"), reports()])
    assert await summed(system, answer["id"]) == times(1)
    assert system.observer.drops == {"after the end": 1}


async def test_a_bare_message_counts_for_its_day(system: System) -> None:
    bare = message("hi")
    with_report = WorkerEvent(
        bare.kind, bare.state, {**bare.document, "metadata": metadata(ONE.document())}, bare.dialect, usage=reports().usage
    )
    await done(system, with_report)
    (day,) = await system.engine.usage.of_days(UsageQuery("default", ("role",)))
    assert (day.names, day.input_tokens, day.costs) == (("echo",), 100, {"USD": 500_000})


async def test_a_replayed_report_counts_once(stored_system: System) -> None:
    """The worker repeats what the hub has not stored, at the hub's position."""
    system = stored_system
    await system.enrol("echo:a", replays=True)
    system.forwarder.plan("echo:a", task(position="b.1"), reports(position="b.2"), CUT)
    system.forwarder.plan("echo:a", reports(position="b.3"), reports("completed", position="b.4"))
    answer = await system.send()
    assert system.forwarder.calls[1][2].position == "b.2"
    assert await summed(system, answer["id"]) == times(3)


async def test_a_report_whose_append_failed_counts_once(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a", replays=True)
    hold, rest = Hold(), (reports(position="b.2"), reports("completed", position="b.3"))
    system.forwarder.plan("echo:a", task(position="b.1"), hold, *rest)
    for _ in range(2):
        system.forwarder.plan("echo:a", *rest)
    pending = asyncio.create_task(system.send())
    await hold.reached.wait()
    system.engine.fail("events.append", StoreUnavailable(), times=2)
    hold.release()
    answer = await pending
    assert end(answer) == ("completed", "")
    assert await summed(system, answer["id"]) == times(2)
    assert len(system.engine.arguments("events.append")) == 5


async def test_over_a_restart_of_the_hub_each_report_counts_once(stored_system: System) -> None:
    system = stored_system
    await system.enrol("echo:a", replays=True)
    await reaches(system, task(position="b.1"), reports(position="b.2"))
    task_id = (await system.row()).id
    system.forwarder.plan("echo:a", reports(position="b.3"), reports("completed", position="b.4"))
    await system.restart()
    await asyncio.sleep(10)
    assert end(await system.get(task_id)) == ("completed", "")
    assert await summed(system, task_id) == times(3)


async def test_a_polled_task_counts_what_its_sums_have_more(system: System) -> None:
    """A Task has the sums so far: of a worker that cannot stream, or after a cut."""
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task(), reports(), CUT)
    later = [ONE.document(), ONE.document(), {"model": "large", "inputTokens": 7}]
    system.forwarder.plan_fetch(
        "echo:a", task("working", metadata=metadata(ONE.document())), task("completed", "ready", metadata=metadata(*later))
    )
    answer = await system.send()
    assert await summed(system, answer["id"]) == [Usage("large", 7), *times(2)]
    assert sorted(read_reports(answer["metadata"][USAGE_EXTENSION]).usage, key=lambda one: one.model) == [
        Usage("large", 7),
        *times(2),
    ]


async def test_a_worker_that_answers_with_a_task_reports_in_its_metadata(system: System) -> None:
    answer = await done(system, task("completed", metadata=metadata(ONE.document())), streaming=False)
    assert await summed(system, answer["id"]) == times(1)
    assert answer["metadata"][USAGE_EXTENSION] == ONE.document()


# --- what stays


async def test_sums_of_days_outlive_tasks_and_are_forgotten_in_their_turn(system: System) -> None:
    system.with_bounds(limits=hub_limits(retention=timedelta(days=1), keep_usage=timedelta(days=30)))
    answer = await done(system, task(), reports("completed"))
    query = UsageQuery("default", ("role",))
    await asyncio.sleep(2 * DAY)
    await system.hub.forget()
    assert not await system.rows()
    assert await system.engine.usage.of_tasks([TaskId(answer["id"])]) == {}
    assert [group.input_tokens for group in await system.hub.usage(query)] == [100]
    await asyncio.sleep(30 * DAY)
    await system.hub.forget()
    assert list(await system.hub.usage(query)) == []


@pytest.mark.parametrize("context", [None, "ctx"])
async def test_only_the_erasure_of_a_holder_takes_the_name_out_of_sums(system: System, context: str | None) -> None:
    await system.enrol("echo:a")
    for _ in range(2):
        system.forwarder.plan("echo:a", task(), reports("completed"))
        await system.send(contextId="ctx")
    erased = await system.hub.erasure.all_of(CALLER, context)
    assert erased == (2, False)
    (group,) = await system.hub.usage(UsageQuery("default", ("holder",)))
    assert group.names == (("",) if context is None else ("local",))
    assert group.input_tokens == 200


async def test_a_holder_with_more_tasks_than_one_request_erases_keeps_the_name_until_the_last(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure, "_AT_ONCE", 1)
    await system.enrol("echo:a")
    for _ in range(2):
        system.forwarder.plan("echo:a", task(), reports("completed"))
        await system.send()
    found = []
    for _ in range(2):
        erased = await system.hub.erasure.all_of(CALLER)
        (group,) = await system.hub.usage(UsageQuery("default", ("holder",)))
        found.append((erased.more, group.names))
    assert found == [(True, ("local",)), (False, ("",))]
