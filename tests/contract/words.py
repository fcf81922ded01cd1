"""Shared helpers of the contract tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from hub.ports.state.engine import Engine
from hub.ports.state.event_log import LogEntry
from hub.ports.state.registry import Registry, RegistryFeed
from rolecall.model.a2a import Event, EventKind, Ids, Logged, TaskState
from rolecall.model.call import CallName
from rolecall.model.ids import START, Caller, Cursor, FileId, TaskId, WorkerId, new_task_id
from rolecall.model.task import TaskRow, Turn
from rolecall.model.usage import Usage
from rolecall.model.worker import Beat, LeaseProof, Offer, Registration
from tests.helpers.watched_engine import append_to

ANNA = Caller("default", "anna")
BERT = Caller("default", "bert")
OTHER_ANNA = Caller("elsewhere", "anna")
SOON = timedelta(milliseconds=5)
LONG = timedelta(seconds=10)
TTL = timedelta(seconds=120)

WORKER = WorkerId("echo", "one")


NAME = CallName(b"name of one call", b"what its text is")
"""A name that the caller chose."""


# --- tasks and logs


def a_row(caller: Caller = ANNA, **members: Any) -> TaskRow:
    usual: dict[str, Any] = {
        "id": new_task_id(),
        "caller": caller,
        "role": "echo",
        "worker": WORKER,
        "epoch": 1,
        "context": "ctx",
        "worker_task": "",
        "worker_context": "",
        "dialect": "0.3",
        "log_dialect": "0.3",
        "alias": "",
        "state": TaskState.SUBMITTED,
        "at": START,
        "position": None,
        "size": 0,
        "created": 1_700_000_000.0,
        "updated": 1_700_000_000.0,
    }
    return TaskRow(**{**usual, **members})


def a_turn(message: str = "m-1", after: int = 0, params: bytes = b'{"message":{}}') -> Turn:
    return Turn(Cursor(after), message, "0.3", params)


async def admitted(engine: Engine, caller: Caller = ANNA, **members: Any) -> TaskId:
    row = a_row(caller, **members)
    assert await engine.tasks.admit(row, a_turn())
    return row.id


def text(body: str = "chunk") -> Event:
    return Event(EventKind.ARTIFACT, None, "0.3", body.encode())


def status(state: TaskState) -> Event:
    return Event(EventKind.STATUS, state, "0.3", b'{"status":{}}')


def message(body: str = "hello") -> Event:
    return Event(EventKind.MESSAGE, None, "0.3", body.encode())


DONE = status(TaskState.COMPLETED)


async def append(
    engine: Engine,
    task: TaskId,
    *events: Event,
    after: int = 0,
    position: str | None = None,
    ids: Ids | None = None,
    usage: Sequence[Usage] = (),
) -> Cursor:
    return await append_to(engine.events, task, LogEntry(events, position, ids, usage=usage), after=Cursor(after))


async def append_with(
    engine: Engine, task: TaskId, events: Sequence[Event], *, files: Sequence[FileId] = (), after: int = 0
) -> Cursor:
    return await append_to(engine.events, task, LogEntry(events, files=files), after=Cursor(after))


async def grown(engine: Engine, task: TaskId, count: int, *, size: int = 10) -> list[Logged]:
    """Append that many events, and return what a reader must get."""
    events = [text(f"{at}".ljust(size, ".")) for at in range(1, count + 1)]
    await append(engine, task, *events)
    return [Logged(Cursor(at), event) for at, event in enumerate(events, 1)]


# --- workers


def an_offer(worker: WorkerId = WORKER, url: str = "http://127.0.0.1:9001/", **members: Any) -> Offer:
    return Offer(worker, url, **members)


async def enrolled(registry: Registry, worker: WorkerId = WORKER, boot: str = "boot", **members: Any) -> Registration:
    workspace = members.pop("workspace", "default")
    ttl = members.pop("ttl", TTL)
    return await registry.enrol(workspace, an_offer(worker, **members), boot=boot, ttl=ttl)


def proof(registration: Registration) -> LeaseProof:
    return LeaseProof(registration.epoch, registration.secret)


async def beat(registry: Registry, registration: Registration, **members: Any) -> Registration:
    return await registry.beat(registration.workspace, registration.worker, proof(registration), Beat(**members))


async def next_changes(feed: RegistryFeed) -> Sequence[tuple[int, str, str]]:
    """The next batch of a feed: revision, kind and worker of each change."""
    return [(change.revision, str(change.kind), str(change.worker)) for change in await anext(feed)]


async def kinds(registry: Registry, *, after: int = 0, workspace: str = "default") -> list[str]:
    feed = registry.changes(workspace, after=after, idle=SOON)
    try:
        return [kind for _, kind, _ in await next_changes(feed)]
    finally:
        feed.stop()
