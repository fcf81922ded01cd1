"""All engines give the same answers to random operations. This finds differences that the contract tests miss."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from hub.ports.state.engine import Engine
from hub.storage import open_engine
from rolecall.errors import HubError, TaskNotFound
from rolecall.model.a2a import Ids, TaskState
from rolecall.model.call import CallName
from rolecall.model.command import TaskQuery
from rolecall.model.ids import Caller, Cursor, TaskId, WorkerId
from rolecall.model.value import replace
from rolecall.model.worker import Beat, Health, LeaseProof, Registration
from tests.contract.words import ANNA, BERT, a_row, a_turn, an_offer, append, message, status, text
from tests.helpers.clock import ManualClock
from tests.helpers.databases import empty_database
from tests.helpers.examples import examples
from tests.helpers.reading import next_batch

Operation = tuple[Any, ...]

WINDOW = timedelta(seconds=30)
NONE = timedelta(0)
small = st.integers(0, 3)
task_ids = small.map(lambda at: TaskId(f"task-{at}"))
workers = small.map(lambda at: WorkerId("echo" if at % 2 else "coder", str(at // 2)))
callers = st.sampled_from([ANNA, ANNA, BERT])
events = st.one_of(
    st.just(text()), st.just(text("x" * 70_000)), st.sampled_from(list(TaskState)).map(status), st.just(message())
)
# Made of the message, chosen by the caller, and both.
NAMES = [CallName(b"1" * 16), CallName(b"2" * 16), CallName(b"3" * 16, b"c" * 16)]
names = st.sampled_from([(), NAMES[:1], NAMES[1:2], NAMES[2:], NAMES[::2]])
contexts = st.sampled_from(["ctx-1", "ctx-2"])

operations = st.one_of(
    st.tuples(st.just("admit"), callers, task_ids, contexts, st.none() | workers, names),
    st.tuples(st.just("append"), task_ids, small, st.lists(events, min_size=1, max_size=2), st.booleans()),
    st.tuples(st.just("append_next"), task_ids, events),
    st.tuples(st.just("turn"), task_ids, names),
    st.tuples(st.just("drop_turn"), task_ids, st.sampled_from(["m-1", "more"])),
    st.tuples(st.just("assign"), task_ids, workers),
    st.tuples(st.just("discard"), task_ids),
    st.tuples(st.just("forget")),
    st.tuples(st.just("forget_calls")),
    st.tuples(st.just("look"), callers, task_ids, contexts),
    st.tuples(st.just("get"), callers, task_ids),
    st.tuples(st.just("enrol"), workers, small, small, st.booleans()),
    st.tuples(st.just("beat"), workers, small, st.none() | st.booleans()),
    st.tuples(st.just("withdraw"), workers, small),
    st.tuples(st.just("mark"), workers, small, st.sampled_from(list(Health))),
    st.tuples(st.just("sweep")),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 1.0, 30.0, 100.0])),
)


def seen(registration: Registration | None) -> dict[str, Any] | None:
    """A registration without its secret, which differs per engine."""
    return {k: v for k, v in asdict(registration).items() if k != "secret"} if registration is not None else None


class EngineUnderTest:
    """One engine. Both get the same operations."""

    def __init__(self, engine: Engine, clock: ManualClock) -> None:
        self.engine, self.clock = engine, clock

    async def answer(self, operation: Operation) -> Any:
        ask: Callable[..., Awaitable[Any]] = getattr(self, operation[0])
        try:
            return await ask(*operation[1:])
        except HubError as error:
            return type(error)

    async def admit(self, caller: Any, task: TaskId, context: str, worker: WorkerId | None, names: Any) -> Any:
        now = self.clock.wall()
        role = worker.role if worker is not None else "echo"
        row = a_row(caller, id=task, context=context, worker=worker, role=role, updated=now)
        return await self.engine.tasks.admit(row, a_turn(), names=names, remembered=WINDOW)

    async def append(self, task: TaskId, after: int, new: list[Any], ids: bool) -> Any:
        known = Ids(task, "ctx-2", "w", "wc") if ids else None
        return await append(self.engine, task, *new, after=after, position=str(after), ids=known)

    async def append_next(self, task: TaskId, event: Any) -> Any:
        return await append(self.engine, task, event, after=len(await self.engine.events.read(task)))

    async def turn(self, task: TaskId, names: Any) -> Any:
        return await self.engine.tasks.add_turn(task, a_turn("more"), names=names, remembered=WINDOW)

    async def drop_turn(self, task: TaskId, name: str) -> Any:
        await self.engine.tasks.drop_turn(task, a_turn(name))

    async def assign(self, task: TaskId, worker: WorkerId) -> Any:
        await self.engine.tasks.assign(task, worker, 5, "1.0")

    async def discard(self, task: TaskId) -> Any:
        await self.engine.tasks.discard(task)

    async def forget(self) -> Any:
        return await self.engine.tasks.forget(ended_for=timedelta(seconds=60), paused_for=timedelta(seconds=90))

    async def forget_calls(self) -> Any:
        while await self.engine.tasks.forget_calls(remembered=WINDOW):
            pass

    async def look(self, caller: Any, task: TaskId, context: str) -> Any:
        tasks, log = self.engine.tasks, self.engine.events
        page = await tasks.page(caller, TaskQuery(context_id=context, limit=2))
        rest = await tasks.page(caller, TaskQuery(context_id=context, limit=2, before=page.before)) if page.before else None
        reader = log.follow(task, after=Cursor(1), idle=NONE)
        try:
            batch = list(await next_batch(reader))
        except (TaskNotFound, EOFError) as ended:
            batch = [type(ended)]
        reader.stop()
        feed = self.engine.task_changes.follow(caller, after=0, idle=NONE)
        changes = [replace(change, revision=0, worker=None, context="") for change in await feed.stored()]
        feed.stop()
        return [
            changes,
            page,
            rest,
            await tasks.conversation(caller, context, None),
            list(await tasks.paused(caller, context, "echo")),
            list(holders := await tasks.holders()),
            [list(await tasks.paused_at(holder, after=None, limit=2)) for holder in holders],
            sorted(row.id for row in await tasks.unfinished()),
            [await tasks.find_call(name.digest, remembered=WINDOW) for name in NAMES],
            list(await tasks.turns(task)),
            list(await log.read(task)),
            list(await log.read(task, after=Cursor(1), upto=Cursor(2))),
            batch,
        ]

    async def get(self, caller: Any, task: TaskId) -> Any:
        return await self.engine.tasks.get(caller, task)

    async def enrol(self, worker: WorkerId, boot: int, url: int, supersede: bool) -> Any:
        offer, ttl = an_offer(worker, f"http://127.0.0.1:{9_000 + url}/"), timedelta(seconds=60 * (boot % 3))
        return seen(await self.engine.registry.enrol("default", offer, boot=str(boot), ttl=ttl, supersede=supersede))

    async def beat(self, worker: WorkerId, epoch: int, draining: bool | None) -> Any:
        beat = Beat(in_flight=epoch, draining=draining)
        return seen(await self.engine.registry.beat("default", worker, LeaseProof(epoch or None, None), beat))

    async def withdraw(self, worker: WorkerId, epoch: int) -> Any:
        await self.engine.registry.withdraw("default", worker, LeaseProof(epoch, None))

    async def mark(self, worker: WorkerId, epoch: int, health: Health) -> Any:
        await self.engine.registry.mark("default", worker, epoch, health, "why")

    async def sweep(self) -> Any:
        return sorted(str(ended.worker) for ended in await self.engine.registry.sweep())

    async def wait(self, seconds: float) -> Any:
        self.clock.advance(seconds)

    async def registry(self) -> Any:
        registry = self.engine.registry
        feed = registry.changes("default", after=0, idle=NONE)
        live = sorted(map(str, map(seen, registry.live("default"))))
        found = [live, list(registry.roles("default")), registry.last_of("default", "echo"), list(await anext(feed))]
        feed.stop()
        found += [await registry.ended("default", WorkerId("echo" if at % 2 else "coder", str(at // 2))) for at in range(4)]
        return found


def admit_and_discard(caller: Caller) -> list[Operation]:
    return [("admit", caller, TaskId("task-0"), "ctx-1", None, ()), ("discard", TaskId("task-0"))]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(operations, max_size=40))
@example([*admit_and_discard(ANNA), *admit_and_discard(BERT), ("wait", 100.0), ("forget",)])
def test_engines_agree(asked: list[Operation]) -> None:
    async def run() -> None:
        clocks = ManualClock(), ManualClock()
        with tempfile.TemporaryDirectory() as folder:
            async with (
                open_engine("memory:", clock=clocks[0]) as memory,
                open_engine(f"sqlite://{empty_database(Path(folder, 'hub.db'))}", clock=clocks[1]) as sqlite,
            ):
                one, other = EngineUnderTest(memory, clocks[0]), EngineUnderTest(sqlite, clocks[1])
                for operation in asked:
                    assert await one.answer(operation) == await other.answer(operation), operation
                    assert await one.registry() == await other.registry(), operation

    asyncio.run(run())
