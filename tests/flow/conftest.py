"""The system under test: a whole core in one process on virtual time, with the real codec, scripted workers, and an engine
that tests hold and break.

`system` keeps its state in memory; `stored_system` runs the test on every engine.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from hub.core.hub import Hub, HubLimits
from hub.core.observe import NullObserver
from hub.core.push.configs import PushConfigs
from hub.core.push.deliveries import Deliveries
from hub.core.registry.card_reader import CardReader
from hub.core.registry.configured import ConfiguredAgents
from hub.core.registry.directory import Directory, LeaseTerms
from hub.core.relay.context import Dependencies
from hub.core.routing.failing import FailingWorkers
from hub.core.routing.router import Router
from hub.core.routing.waiting import WaitingCalls
from hub.core.shares.table import ShareLimits, Shares
from hub.core.supervisor import Supervisor
from hub.core.tasks.stream import TaskStream
from hub.identity.vault import SealingVault, random_key
from hub.outbound.client import Client
from hub.outbound.webhook import HttpWebhooks
from hub.outbound.webhook_guard import WebhookGuard
from hub.ports.state.engine import Engine
from hub.storage import open_engine
from rolecall.errors import HubError
from rolecall.model.a2a import TaskState
from rolecall.model.command import CancelTask, GetTask, Send, Subscribe, Target, TaskQuery
from rolecall.model.ids import Caller, Cursor, TaskId, WorkerId
from rolecall.model.principal import LOCAL
from rolecall.model.task import TaskRow
from rolecall.model.usage import Usage
from rolecall.model.worker import LeaseProof, Offer, Registration
from rolecall.protocol.codec import Codec
from rolecall.protocol.extensions.files import FileUrls
from rolecall.protocol.text.jsontext import parse
from rolecall.protocol.v0_3 import requests as v03
from tests.helpers.clock import ManualClock
from tests.helpers.databases import empty_database
from tests.helpers.reading import read_all
from tests.helpers.scripted import ScriptedForwarder
from tests.helpers.scripted_cards import ScriptedCards
from tests.helpers.virtual_time import LoopClock, VirtualTimeLoop
from tests.helpers.watched_engine import WatchedEngine

CALLER = Caller("default", "local")
TTL = timedelta(seconds=120)
SILENCE = 0.8
"""Seconds without a sign of life after which a worker's task fails."""
CARD_REFRESH = timedelta(seconds=30)
KEEP_ALIVE = timedelta(seconds=0.05)
FILE_URLS = "https://hub.example/registry/files/"
"""What the URLs of the hub's files begin with."""


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """`real_time` marks tests with threads that the virtual loop does not know, such as those of a whole application."""
    if item.get_closest_marker("real_time"):
        return {"real": asyncio.SelectorEventLoop}
    return {"virtual": VirtualTimeLoop}


@dataclass
class Recorder(NullObserver):
    """Records the reports of core."""

    drops: Counter[str] = field(default_factory=Counter)
    """Events that were not logged, by reason."""
    logged: list[tuple[str, int, int]] = field(default_factory=list)
    """Role, events and bytes of each append."""
    used_by: dict[str, list[Usage]] = field(default_factory=dict)
    """What was reported, by role."""
    first_event_times: list[float] = field(default_factory=list)
    routes: list[tuple[str, str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    failed_over_roles: list[str] = field(default_factory=list)
    ended: list[tuple[str, str, str]] = field(default_factory=list)
    """Of each task its role, its state, and the class of the hub's error."""
    streams: int = 0
    """Streams that are open now."""

    def dropped(self, role: str, what: str, count: int) -> None:
        self.drops[what] += count

    def events_logged(self, role: str, count: int, size: int) -> None:
        self.logged.append((role, count, size))

    def used(self, role: str, usage: Sequence[Usage]) -> None:
        self.used_by.setdefault(role, []).extend(usage)

    def first_event(self, role: str, seconds: float) -> None:
        self.first_event_times.append(seconds)

    def routed(self, role: str, rule: str, result: str) -> None:
        self.routes.append((role, rule, result))

    def worker_failed(self, role: str, reason: str) -> None:
        self.failures.append(reason)

    def failed_over(self, role: str) -> None:
        self.failed_over_roles.append(role)

    def task_ended(self, role: str, state: TaskState, error: HubError | None) -> None:
        self.ended.append((role, state.value, type(error).__name__ if error is not None else ""))

    def stream_opened(self, role: str) -> None:
        self.streams += 1

    def stream_closed(self, role: str) -> None:
        self.streams -= 1


@dataclass
class System:
    hub: Hub
    directory: Directory
    cards: CardReader
    configured: ConfiguredAgents
    engine: WatchedEngine
    forwarder: ScriptedForwarder
    card_source: ScriptedCards
    clock: ManualClock
    supervisor: Supervisor
    deps: Dependencies
    push: PushConfigs
    observer: Recorder
    _open: Callable[[], Any]

    def restarted(self, *, limits: HubLimits | None = None, **bounds: Any) -> Hub:
        """Another hub on the same store, as after a kill: the old one is not closed, and its shares are not the new one's."""
        deps = replace(self.deps, **{"shares": Shares(), **bounds})
        return Hub(deps, self.supervisor, limits or hub_limits(), self.push)

    async def restart(self, *, limits: HubLimits | None = None, settle: bool = True, **bounds: Any) -> None:
        """Kill the hub, open its store again, and let a new hub settle its tasks or leave that to the test."""
        await self.supervisor.close()
        loop = asyncio.get_running_loop()
        with loop.busy() if isinstance(loop, VirtualTimeLoop) else nullcontext():
            new: System = await self._open()
        new.deps = replace(new.deps, **bounds)
        new.hub = Hub(new.deps, new.supervisor, limits or hub_limits(), new.push)
        self.__dict__.update(new.__dict__)
        if settle:
            await self.hub.settle()

    def with_bounds(self, *, limits: HubLimits | None = None, **bounds: Any) -> None:
        """Replace the hub by one with other limits. Call it first."""
        self.deps = replace(self.deps, **bounds)
        self.hub = Hub(self.deps, self.supervisor, limits or hub_limits(), self.push)

    def watch(self) -> None:
        """Watch for silent workers, as a running hub does."""
        self.supervisor.keep_running("watch", self.hub.relays.watch)

    async def enrol(self, name: str, boot: str = "b", workspace: str = "default", **offer: Any) -> Registration:
        role, _, instance = name.partition(":")
        offer.setdefault("streaming", True)
        registration_offer = Offer(WorkerId(role, instance), offer.pop("url", f"http://w/{name}"), **offer)
        holder = LOCAL if workspace == LOCAL.workspace else replace(LOCAL, workspace=workspace)
        return (await self.directory.enrol(holder, registration_offer, boot=boot)).registration

    async def send(
        self,
        text: str = "hi",
        role: str | None = "echo",
        *,
        caller: Caller = CALLER,
        blocking: bool = True,
        key: str | None = None,
        **members: Any,
    ) -> dict[str, Any]:
        body: dict[str, Any] = parse((await self.hub.send(caller, say(text, role, blocking=blocking, key=key, **members))).body)
        return body

    async def stream(self, text: str = "hi", role: str | None = "echo", **members: Any) -> list[dict[str, Any]]:
        return await frames(await self.hub.stream(CALLER, say(text, role, **members)))

    async def subscribe(self, task: str, after: int | None = None, *, dialect: str = "0.3") -> TaskStream:
        cursor = None if after is None else Cursor(after)
        return await self.hub.subscribe(CALLER, Subscribe(Target(), TaskId(task), (dialect,), cursor))

    async def cancel(self, task: str) -> dict[str, Any]:
        body: dict[str, Any] = parse((await self.hub.cancel(CALLER, CancelTask(Target(), TaskId(task), ("0.3",)))).body)
        return body

    async def get(self, task: str, caller: Caller = CALLER) -> dict[str, Any]:
        body: dict[str, Any] = parse((await self.hub.get(caller, GetTask(Target(), TaskId(task), ("0.3",)))).body)
        return body

    async def rows(self) -> list[TaskRow]:
        """Every task of `CALLER`, and those of others that have not ended; revealed or not. Not the bare messages."""
        mine = (await self.engine.tasks.page(CALLER, TaskQuery())).rows
        return [*mine, *(row for row in await self.engine.tasks.unfinished() if row.caller != CALLER)]

    async def row(self) -> TaskRow:
        """The only task."""
        (row,) = await self.rows()
        return row


def hub_limits(**changed: Any) -> HubLimits:
    """The limits of a hub under test: far away, except for a short `keep_alive`."""
    limits = HubLimits(
        keep_alive=KEEP_ALIVE,
        retention=timedelta(hours=24),
        max_pause=timedelta(days=7),
        same_message=timedelta(seconds=60),
        keep_usage=timedelta(days=400),
    )
    return replace(limits, **changed)


def shares(**limits: int) -> Shares:
    """What there is of each scarce thing in a hub under test."""
    return Shares(ShareLimits(**limits))


def proof(lease: Registration) -> LeaseProof:
    return LeaseProof(lease.epoch, lease.secret)


def say(text: str = "hi", role: str | None = "echo", *, blocking: bool = True, key: str | None = None, **members: Any) -> Send:
    message = {"messageId": str(uuid4()), "parts": [{"kind": "text", "text": text}], **members}
    params = {"message": message, "configuration": {"blocking": blocking}}
    return v03.read_send(params, Target(path_role=role), key=key)


async def frames(task_stream: TaskStream) -> list[dict[str, Any]]:
    return [{"cursor": one.cursor, **parse(one.event.body)} for one in await read_all(task_stream)]


@pytest.fixture
async def system() -> AsyncIterator[System]:
    async with open_system() as system:
        yield system


@pytest.fixture(params=["memory", "sqlite"])
async def stored_system(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[System]:
    """The same on every engine. `restart` opens the store again."""
    url = "memory:" if request.param == "memory" else f"sqlite://{empty_database(tmp_path / 'data' / 'hub.db')}"
    async with open_system(url) as system:
        yield system


@asynccontextmanager
async def open_system(url: str = "memory:") -> AsyncIterator[System]:
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop) if isinstance(loop, VirtualTimeLoop) else ManualClock()
    forwarder, card_source, observer, key = ScriptedForwarder(), ScriptedCards(), Recorder(), random_key()
    kept = open_engine(url, clock=clock)
    async with AsyncExitStack() as stack:

        async def opened() -> System:
            nonlocal kept
            if url != "memory:":  # the memory engine keeps its state by staying open
                await stack.aclose()
                kept = open_engine(url, clock=clock)
            parts = {"forwarder": forwarder, "card_source": card_source, "observer": observer, "key": key}
            return await _assemble(kept, stack, clock=clock, opened=opened, **parts)

        system = await opened()
        yield system
        system.hub.drain()
        await system.supervisor.close()


async def _assemble(
    engine: Engine,
    stack: AsyncExitStack,
    *,
    clock: ManualClock,
    forwarder: ScriptedForwarder,
    card_source: ScriptedCards,
    observer: Recorder,
    key: bytes,
    opened: Callable[[], Any],
) -> System:
    supervisor, guard = Supervisor(), WebhookGuard((), [ip_network("127.0.0.0/8")], ())
    watched = WatchedEngine(await stack.enter_async_context(engine))
    client = await stack.enter_async_context(Client(guard))
    failing = FailingWorkers(watched.registry, clock, supervisor)
    deps = Dependencies(
        engine=watched,
        forwarder=forwarder,
        codec=Codec(clock.wall, FileUrls(FILE_URLS)),
        router=Router(watched.registry, watched.tasks, failing, default_role=None, rng=Random(7)),
        failing=failing,
        waiting=(waiting := WaitingCalls(watched.registry)),
        observer=observer,
        clock=clock,
        silence=timedelta(seconds=SILENCE),
    )
    webhooks, vault = HttpWebhooks(client, guard, clock.wall), SealingVault(key)
    deliveries = Deliveries(deps, webhooks, vault, supervisor)
    push = PushConfigs(watched.pushes, webhooks, vault, deliveries, limit=10)
    hub = Hub(deps, supervisor, hub_limits(), push)
    cards = CardReader(
        watched.registry, card_source, clock, supervisor, deps.shares.card_reads, refresh=CARD_REFRESH, rng=Random(7)
    )
    directory = Directory(
        watched.registry,
        forwarder,
        observer,
        LeaseTerms(TTL, timedelta(seconds=45)),
        cards=cards,
        on_beat=waiting.wake,
        check_url=lambda url, networks: None,
        limit=100,
        per_holder_limit=100,
    )
    heartbeat = timedelta(seconds=45)
    configured = ConfiguredAgents(watched.registry, directory, cards, card_source, clock, supervisor, heartbeat=heartbeat)
    supervisor.keep_running("waiting calls", waiting.watch)
    return System(
        hub, directory, cards, configured, watched, forwarder, card_source, clock, supervisor, deps, push, observer, opened
    )
