"""What handlers report of usage: the sums in the task, and the events that carry them."""

from __future__ import annotations

import asyncio
import logging
import threading
from decimal import Decimal
from textwrap import indent
from typing import Any

import pytest

from rolecall import Budget, BudgetSpent, Message, NeedInput, Status, Task, TooLarge, Usage, Worker
from rolecall.model.card import USAGE_EXTENSION
from tests.helpers.pages import blocks_of
from tests.unit.worker_sdk.test_worker import HandlerStream, until, worker_of
from worker_sdk.calling.reply import StreamEvent
from worker_sdk.tasks.task_table import TaskLimits

PAGE = blocks_of("docs/howto/usage-and-budgets.md")
TWO = [Usage("large", 5, 0, 2_500_000, "EUR"), Usage("small", 300, 60, 30_000_000, "USD")]


def report(task: Task) -> None:
    task.usage(model="small", input_tokens=100, output_tokens=20, cost=0.01)
    task.usage(model="small", input_tokens=200, output_tokens=40, cost="0.02")
    task.usage(model="large", input_tokens=5, cost=Decimal("0.0025"), currency="EUR")


async def coroutine(text: str, task: Task) -> str:
    report(task)
    return "done"


async def generator(text: str, task: Task) -> HandlerStream:
    yield Status("thinking")
    report(task)
    yield "done"


def plain(text: str, task: Task) -> str:
    report(task)
    return "done"


async def events_of(worker: Worker, text: str = "x") -> list[StreamEvent]:
    async with worker.test() as t:
        return [event async for event in t.stream(text)]


def reported(events: list[StreamEvent]) -> list[tuple[str, int]]:
    """The events that report something: their kind, and how many tokens."""
    return [(event.kind, sum(one.tokens for one in event.usage)) for event in events if event.kind != "task" and event.usage]


@pytest.mark.parametrize("handler", [coroutine, generator, plain])
async def test_every_form_of_handler_reports_usage(handler: Any) -> None:
    async with worker_of(handler).test() as t:
        reply = await t.send("x")
    assert (reply.state, reply.text) == ("completed", "done")
    assert sorted(reply.usage, key=lambda one: one.model) == TWO
    assert [one.cost for one in reply.usage if one.model == "small"] == [Decimal("0.03")]


async def test_reports_at_the_end_go_with_the_last_status() -> None:
    assert reported(await events_of(worker_of(coroutine))) == [("done", 365)]


async def test_reports_of_a_handler_that_works_on_are_sent_at_once() -> None:
    seen = asyncio.Event()

    async def handler(text: str, task: Task) -> str:
        report(task)
        await seen.wait()
        task.usage(output_tokens=1)
        return "done"

    async with worker_of(handler).test() as t:
        found = []
        async for event in t.stream("x"):
            found.append(event)
            if event.usage:
                seen.set()
    assert reported(found) == [("status", 365), ("done", 1)]
    (early,) = [event for event in found if event.kind == "status"]
    assert (early.text, early.state) == ("", "working")
    assert "message" not in early.raw["status"]


async def test_a_status_of_the_handler_takes_the_reports_along() -> None:
    async def handler(text: str, task: Task) -> HandlerStream:
        task.usage(input_tokens=1)
        yield Status("thinking")

    assert reported(await events_of(worker_of(handler))) == [("status", 1)]


async def test_while_a_task_waits_for_its_caller_reports_do_not_end_the_pause() -> None:
    go_on = asyncio.Event()

    async def beside(task: Task) -> None:
        await go_on.wait()
        task.usage(input_tokens=7)

    async def handler(text: str, task: Task) -> HandlerStream:
        other = asyncio.create_task(beside(task))
        answer: Message = yield NeedInput("Which?")
        await other
        yield answer.text

    async with worker_of(handler).test() as t:
        asked = await t.send("x")
        go_on.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert (await t.get(asked.task_id or "")).state == "input-required"
        reply = await t.send("red", task_id=asked.task_id)
    assert (reply.state, reply.text) == ("completed", "red")
    assert [one.tokens for one in reply.usage] == [7]


async def test_no_report_of_many_threads_is_lost() -> None:
    def handler(text: str, task: Task) -> str:
        def work() -> None:
            for _ in range(200):
                task.usage(model="m", input_tokens=1)

        threads = [threading.Thread(target=work) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return "done"

    async with worker_of(handler).test() as t:
        reply = await t.send("x")
    assert list(reply.usage) == [Usage("m", 1_000)]


async def test_a_failed_task_keeps_what_it_has_used() -> None:
    async def handler(text: str, task: Task) -> None:
        task.usage(input_tokens=3)
        raise ValueError("bug")

    async with worker_of(handler).test() as t:
        reply = await t.send("x")
    assert (reply.state, [one.tokens for one in reply.usage]) == ("failed", [3])


async def test_a_report_after_the_end_is_lost_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    kept: list[Task] = []

    async def handler(text: str, task: Task) -> str:
        kept.append(task)
        return "done"

    with caplog.at_level(logging.WARNING):
        async with worker_of(handler).test() as t:
            reply = await t.send("x")
            kept[0].usage(input_tokens=3)
            await until(lambda: "its handler reports usage" in caplog.text)
            assert (await t.get(reply.task_id or "")).usage == ()


async def test_a_report_is_not_lost_with_a_status_that_is_too_large() -> None:
    async def handler(text: str, task: Task) -> HandlerStream:
        task.usage(input_tokens=3)
        try:
            yield Status(data={"long": "x" * 100_000})
        except TooLarge:
            yield "refused"

    async with worker_of(handler, max_event=64 * 1024).test() as t:
        reply = await t.send("x")
    assert (reply.text, [one.tokens for one in reply.usage]) == ("refused", [3])


async def test_sums_survive_dropped_events() -> None:
    async def handler(text: str, task: Task) -> HandlerStream:
        for _ in range(30):
            task.usage(model="m", input_tokens=1)
            yield Status("x" * 1_000)

    worker = worker_of(handler, limits=TaskLimits(log=4_000))
    async with worker.test() as t:
        found = [event async for event in t.stream("x")]
        log = t.tasks.get(found[0].raw["id"])
        assert log.first > 1
        reply = await t.get(log.task_id)
    assert sum(tokens for _, tokens in reported(found)) == 30
    assert list(reply.usage) == [Usage("m", 30)]


async def test_reports_wait_where_the_log_is_full() -> None:
    async def beside(task: Task) -> None:
        for _ in range(200):
            task.usage(input_tokens=1)
            await asyncio.sleep(0)

    async def handler(text: str, task: Task) -> HandlerStream:
        other = asyncio.create_task(beside(task))
        yield "x" * 4_000
        yield "y"
        await other

    async with worker_of(handler, limits=TaskLimits(log=4_000)).test() as t:
        asked = await t.send("x", blocking=False)
        log = t.tasks.get(asked.task_id or "")
        await until(lambda: log.full)
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert log.size < 6_000
        reader = log.follow(0)
        while not log.ended:
            await reader.batch(1)
        reader.close()
        assert [one.tokens for one in (await t.get(log.task_id)).usage] == [200]


async def test_what_cannot_be_reported_raises() -> None:
    problems = list[str]()

    async def handler(text: str, task: Task) -> str:
        for members in (
            {},
            {"input_tokens": -1},
            {"output_tokens": 1.5},
            {"cost": "much"},
            {"cost": 1, "currency": "dollars"},
            {"cost": Decimal("nan")},
            {"input_tokens": 1, "model": "x" * 200},
        ):
            with pytest.raises(ValueError) as raised:
                task.usage(**members)
            problems.append(str(raised.value))
        return "done"

    async with worker_of(handler).test() as t:
        assert (await t.send("x")).usage == ()
    assert [problem.split(" is ")[0] for problem in problems] == [
        "task.usage takes tokens or a cost",
        "a number of tokens",
        "a number of tokens",
        "an amount",
        "a currency",
        "an amount",
        "a model",
    ]


def test_a_workers_card_says_that_it_reports_usage() -> None:
    extensions = worker_of(coroutine).card("http://127.0.0.1:1/")["capabilities"]["extensions"]
    assert USAGE_EXTENSION in [extension["uri"] for extension in extensions]


# --- budgets


async def test_the_handler_of_the_page_goes_on_without_what_its_budget_does_not_pay() -> None:
    writer, planner = (dict[str, Any](names) for names in ({"__name__": "writer"}, {"Task": Task, "BudgetSpent": BudgetSpent}))
    exec(PAGE["worker"], writer)
    handler = f"await task.call('writer', notes)\n{PAGE['spent']}return text"
    exec(f"async def plan(notes: str, task: Task) -> str:\n{indent(handler, '    ')}", planner)
    worker = Worker("planner")
    worker.on_message(planner["plan"])
    async with worker.test(roles={"writer": writer["writer"]}) as t:
        assert (await t.call("bees", budget=Budget(2))).text == "A page about bees."
        assert (await t.call("bees", budget=Budget("0.0005"))).text == "bees\n(not polished: 0.00054 of 0.0005 USD are spent)"


@pytest.mark.parametrize(
    ("budget", "document"),
    [
        (Budget(2), {"cost": {"amount": "2", "currency": "USD"}}),
        (Budget("0.50", "EUR"), {"cost": {"amount": "0.5", "currency": "EUR"}}),
        (Budget(tokens=10), {"tokens": 10}),
        (Budget(0.1, tokens=10), {"tokens": 10, "cost": {"amount": "0.1", "currency": "USD"}}),
    ],
)
def test_a_budget_is_written_as_the_hub_reads_it(budget: Budget, document: Any) -> None:
    assert budget.metadata() == {USAGE_EXTENSION: {"budget": document}}


@pytest.mark.parametrize("members", [{}, {"cost": 0}, {"cost": -1}, {"cost": 1, "currency": "$"}, {"tokens": 0}, {"cost": "x"}])
def test_what_is_no_budget_raises(members: Any) -> None:
    with pytest.raises(ValueError):
        Budget(**members)


def workers() -> tuple[Worker, Worker, Worker]:
    """A planner calls a writer as often as its text tells, if once with 15 tokens; the writer calls a checker twice.
    Each uses 10 tokens.
    """
    planner, writer, checker = (Worker(role) for role in ("planner", "writer", "checker"))

    @planner.on_message
    async def plan(text: str, task: Task) -> str:
        task.usage(input_tokens=10)
        found = ""
        for number in range(int(text)):
            try:
                found = (await task.call("writer", "x", budget=Budget(tokens=15) if text == "1" else None)).text
            except BudgetSpent as error:
                return f"after {number}: {error.facts['spentTokens']} of {error.facts['budgetTokens']}, {error.facts['chain']}"
        return found

    @writer.on_message
    async def write(text: str, task: Task) -> str:
        task.usage(input_tokens=10)
        await task.call("checker", "x")
        try:
            await task.call("checker", "x")
        except BudgetSpent as error:
            return f"{error.facts['spentTokens']} of {error.facts['budgetTokens']}, {error.facts['chain']}"
        return "done"

    @checker.on_message
    async def check(text: str, task: Task) -> None:
        task.usage(input_tokens=10)

    return planner, writer, checker


async def test_a_test_of_workers_keeps_to_the_budget_of_its_tree() -> None:
    planner, writer, checker = workers()
    async with planner.test(roles={"writer": writer, "checker": checker}) as t:
        assert (await t.call("4")).text == "done"
        assert (await t.call("4", budget=Budget(tokens=60))).text == "after 2: 60 of 60, planner > writer"
        assert (await t.call("4", budget=Budget(1))).text == "done"


async def test_a_call_in_a_task_may_have_a_smaller_budget() -> None:
    planner, writer, checker = workers()
    async with planner.test(roles={"writer": writer, "checker": checker}) as t:
        assert (await t.call("1", budget=Budget(1))).text == "20 of 15, planner > writer > checker"
