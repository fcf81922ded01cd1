"""A whole core in one process, on virtual time: the real codec, workers that follow a script, and an engine to stop and break.

`house` keeps its state in memory; `stored_house` runs the test on every engine.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
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
from hub.core.registry.directory import Directory, LeaseTerms
from hub.core.relay.context import Dependencies
from hub.core.routing.router import Router
from hub.core.supervisor import Supervisor
from hub.core.tasks.stream import TaskStream
from hub.identity.vault import SealingVault, random_key
from hub.outbound.client import Client
from hub.outbound.webhook import HttpWebhooks
from hub.outbound.webhook_guard import WebhookGuard
from hub.ports.engine import Engine
from hub.storage import open_engine
from rolecall.model.command import CancelTask, GetTask, Send, Subscribe, Target
from rolecall.model.ids import Caller, Cursor, TaskId, WorkerId
from rolecall.model.principal import LOCAL
from rolecall.model.task import TaskRow
from rolecall.model.worker import LeaseProof, Offer, Registration
from rolecall.protocol.codec import Codec
from rolecall.protocol.text.jsontext import parse
from rolecall.protocol.v0_3 import requests as v03
from tests.helpers.clock import MovableClock
from tests.helpers.scripted import ScriptedForwarder
from tests.helpers.virtual_time import LoopClock, VirtualTimeLoop
from tests.helpers.watched_engine import WatchedEngine

ME = Caller("default", "local")
TTL = timedelta(seconds=120)
SILENCE = 0.8
"""Seconds without a sign of life after which a worker's task fails."""
KEEP_ALIVE = timedelta(seconds=0.05)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """`real_time` marks what works with threads that no engine of `made_house` knows of, such as a whole application."""
    if item.get_closest_marker("real_time"):
        return {"real": asyncio.SelectorEventLoop}
    return {"virtual": VirtualTimeLoop}


@dataclass
class Recorder(NullObserver):
    """What the observer was told, counted."""

    drops: Counter[str] = field(default_factory=Counter)
    """Events that were not logged, by reason."""
    logged: list[tuple[str, int, int]] = field(default_factory=list)
    """Role, events and bytes of each append."""
    firsts: list[float] = field(default_factory=list)
    routes: list[tuple[str, str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    failovers: list[str] = field(default_factory=list)
    streams: int = 0
    """Open now."""

    def dropped(self, role: str, what: str, count: int) -> None:
        self.drops[what] += count

    def events_logged(self, role: str, count: int, size: int) -> None:
        self.logged.append((role, count, size))

    def first_event(self, role: str, seconds: float) -> None:
        self.firsts.append(seconds)

    def routed(self, role: str, rule: str, result: str) -> None:
        self.routes.append((role, rule, result))

    def worker_failed(self, role: str, reason: str) -> None:
        self.failures.append(reason)

    def failed_over(self, role: str) -> None:
        self.failovers.append(role)

    def stream_opened(self, role: str) -> None:
        self.streams += 1

    def stream_closed(self, role: str) -> None:
        self.streams -= 1


@dataclass
class House:
    hub: Hub
    directory: Directory
    engine: WatchedEngine
    forwarder: ScriptedForwarder
    clock: MovableClock
    supervisor: Supervisor
    deps: Dependencies
    push: PushConfigs
    observer: Recorder
    _open: Callable[[], Any]

    def restarted(self, *, limits: HubLimits | None = None, **bounds: Any) -> Hub:
        """Another hub on the same store, as after a kill: the old one is not told."""
        deps = replace(self.deps, **bounds)
        return Hub(deps, self.supervisor, limits or HubLimits(keep_alive=KEEP_ALIVE), self.push)

    async def restart(self, *, limits: HubLimits | None = None, **bounds: Any) -> None:
        """Kill the hub, open its store again, and let a new hub settle what was left. The rest of the house is the same."""
        await self.supervisor.close()
        loop = asyncio.get_running_loop()
        with loop.busy() if isinstance(loop, VirtualTimeLoop) else nullcontext():
            new: House = await self._open()
        new.deps = replace(new.deps, **bounds)
        new.hub = Hub(new.deps, new.supervisor, limits or HubLimits(keep_alive=KEEP_ALIVE), new.push)
        self.__dict__.update(new.__dict__)
        await self.hub.settle()

    def with_bounds(self, *, limits: HubLimits | None = None, **bounds: Any) -> None:
        """The same house, and a hub with other bounds. To be called before anything else."""
        self.deps = replace(self.deps, **bounds)
        self.hub = self.restarted(limits=limits)

    def watch(self) -> None:
        """Begin to ask after silent workers, as a running hub does."""
        self.supervisor.keep_running("watch", self.hub.relays.watch)

    async def enrol(self, name: str, boot: str = "b", workspace: str = "default", **offer: Any) -> Registration:
        role, _, instance = name.partition(":")
        offer.setdefault("streaming", True)
        described = Offer(WorkerId(role, instance), offer.pop("url", f"http://w/{name}"), **offer)
        holder = LOCAL if workspace == LOCAL.workspace else replace(LOCAL, workspace=workspace)
        return (await self.directory.enrol(holder, described, boot=boot)).registration

    async def send(
        self,
        text: str = "hi",
        role: str | None = "echo",
        *,
        caller: Caller = ME,
        blocking: bool = True,
        key: str | None = None,
        **members: Any,
    ) -> dict[str, Any]:
        body: dict[str, Any] = parse((await self.hub.send(caller, say(text, role, blocking=blocking, key=key, **members))).body)
        return body

    async def stream(self, text: str = "hi", role: str | None = "echo", **members: Any) -> list[dict[str, Any]]:
        return await frames(await self.hub.stream(ME, say(text, role, **members)))

    async def subscribe(self, task: str, after: int | None = None, *, dialect: str = "0.3") -> TaskStream:
        cursor = None if after is None else Cursor(after)
        return await self.hub.subscribe(ME, Subscribe(Target(), TaskId(task), dialect, cursor))

    async def cancel(self, task: str) -> dict[str, Any]:
        body: dict[str, Any] = parse((await self.hub.cancel(ME, CancelTask(Target(), TaskId(task), "0.3"))).body)
        return body

    async def get(self, task: str, caller: Caller = ME) -> dict[str, Any]:
        body: dict[str, Any] = parse((await self.hub.get(caller, GetTask(Target(), TaskId(task), "0.3"))).body)
        return body

    async def rows(self) -> list[TaskRow]:
        """Every task that has not ended, or ended within the last hour: of all callers, shown to somebody or not."""
        return list(await self.engine.tasks.recent(ended_within=timedelta(hours=1)))

    async def row(self) -> TaskRow:
        """The only one."""
        (row,) = await self.rows()
        return row


def proof(lease: Registration) -> LeaseProof:
    return LeaseProof(lease.epoch, lease.secret)


def say(text: str = "hi", role: str | None = "echo", *, blocking: bool = True, key: str | None = None, **members: Any) -> Send:
    message = {"messageId": str(uuid4()), "parts": [{"kind": "text", "text": text}], **members}
    params = {"message": message, "configuration": {"blocking": blocking}}
    return v03.read_send(params, Target(path_role=role), key=key)


async def frames(task_stream: TaskStream) -> list[dict[str, Any]]:
    return [{"cursor": one.cursor, **parse(one.event.body)} async for batch in task_stream for one in batch]


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with made_house() as house:
        yield house


@pytest.fixture(params=["memory", "sqlite"])
async def stored_house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    """The same on every engine. `restart` opens the store again."""
    url = "memory:" if request.param == "memory" else f"sqlite://{tmp_path}/data/hub.db"
    async with made_house(url) as house:
        yield house


@asynccontextmanager
async def made_house(url: str = "memory:") -> AsyncIterator[House]:
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop) if isinstance(loop, VirtualTimeLoop) else MovableClock()
    forwarder, observer, key = ScriptedForwarder(), Recorder(), random_key()
    kept = open_engine(url, clock=clock)
    async with AsyncExitStack() as stack:

        async def opened() -> House:
            nonlocal kept
            if url != "memory:":  # what is in memory is kept by not closing it
                await stack.aclose()
                kept = open_engine(url, clock=clock)
            return await _built(kept, stack, clock=clock, forwarder=forwarder, observer=observer, key=key, opened=opened)

        house = await opened()
        yield house
        house.hub.drain()
        await house.supervisor.close()


async def _built(
    engine: Engine,
    stack: AsyncExitStack,
    *,
    clock: MovableClock,
    forwarder: ScriptedForwarder,
    observer: Recorder,
    key: bytes,
    opened: Callable[[], Any],
) -> House:
    supervisor, guard = Supervisor(), WebhookGuard((), [ip_network("127.0.0.0/8")], ())
    watched = WatchedEngine(await stack.enter_async_context(engine))
    client = await stack.enter_async_context(Client(guard))
    deps = Dependencies(
        engine=watched,
        forwarder=forwarder,
        codec=Codec(clock.wall),
        router=Router(watched.registry, watched.tasks, default_role=None, rng=Random(7)),
        observer=observer,
        clock=clock,
        silence=timedelta(seconds=SILENCE),
    )
    webhooks, vault = HttpWebhooks(client, guard, clock.wall), SealingVault(key)
    deliveries = Deliveries(deps, webhooks, vault, supervisor)
    push = PushConfigs(watched.pushes, webhooks, vault, deliveries, most=10)
    hub = Hub(deps, supervisor, HubLimits(keep_alive=KEEP_ALIVE), push)
    directory = Directory(
        watched.registry,
        forwarder,
        observer,
        LeaseTerms(TTL, timedelta(seconds=45)),
        check_url=lambda url, networks: None,
        most=100,
        most_each=100,
    )
    return House(hub, directory, watched, forwarder, clock, supervisor, deps, push, observer, opened)
