"""A whole core in one process: the memory engine, the real codec, and workers that follow a script."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from ipaddress import ip_network
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from hub.core.directory import Directory, Terms
from hub.core.hub import Hub, Limits
from hub.core.observe import Silent
from hub.core.push import Deliveries
from hub.core.pushes import Push
from hub.core.reading import Reading
from hub.core.router import Router
from hub.core.supervisor import Supervisor
from hub.core.surroundings import Surroundings
from hub.engines import open_engine
from hub.model.command import CancelTask, GetTask, Send, Target
from hub.model.ids import Caller, TaskId, WorkerId
from hub.model.principal import LOCAL
from hub.model.worker import Offer, Proof, Registration
from hub.net.http1 import Client
from hub.net.webhook import HttpWebhooks
from hub.net.webhook_guard import WebhookGuard
from hub.ports import Engine
from hub.vault import SealingVault, random_key
from hub.wire.codec import Codec
from hub.wire.jsontext import parse
from hub.wire.v03 import requests as v03
from tests.helpers.clock import MovableClock
from tests.helpers.scripted import ScriptedForwarder

ME = Caller("default", "local")
TTL = timedelta(seconds=120)
SILENCE = 0.8
"""In seconds of the movable clock. The watch looks four times in one, in real time."""


@dataclass
class House:
    hub: Hub
    directory: Directory
    engine: Engine
    forwarder: ScriptedForwarder
    clock: MovableClock
    supervisor: Supervisor
    around: Surroundings
    push: Push

    def restarted(self, *, limits: Limits | None = None, **bounds: Any) -> Hub:
        """Another hub on the same store, as after a kill: the old one is not told."""
        around = replace(self.around, **bounds)
        return Hub(around, self.supervisor, limits or Limits(keep_alive=timedelta(seconds=0.05)), self.push)

    async def enrol(self, name: str, boot: str = "b", **offer: Any) -> Registration:
        role, _, instance = name.partition(":")
        offer.setdefault("streaming", True)
        described = Offer(WorkerId(role, instance), offer.pop("url", f"http://w/{name}"), **offer)
        return (await self.directory.enrol(LOCAL, described, boot=boot)).registration

    async def send(
        self, text: str = "hi", role: str | None = "echo", *, blocking: bool = True, key: str | None = None, **members: Any
    ) -> dict[str, Any]:
        body: dict[str, Any] = parse((await self.hub.send(ME, say(text, role, blocking=blocking, key=key, **members))).body)
        return body

    async def stream(self, text: str = "hi", role: str | None = "echo", **members: Any) -> list[dict[str, Any]]:
        return await frames(await self.hub.stream(ME, say(text, role, **members)))

    async def cancel(self, task: str) -> dict[str, Any]:
        body: dict[str, Any] = parse((await self.hub.cancel(ME, CancelTask(Target(), TaskId(task), "0.3"))).body)
        return body

    async def get(self, task: str) -> dict[str, Any]:
        body: dict[str, Any] = parse((await self.hub.get(ME, GetTask(Target(), TaskId(task), "0.3"))).body)
        return body


def proof(lease: Registration) -> Proof:
    return Proof(lease.epoch, lease.secret)


def say(text: str = "hi", role: str | None = "echo", *, blocking: bool = True, key: str | None = None, **members: Any) -> Send:
    message = {"messageId": str(uuid4()), "parts": [{"kind": "text", "text": text}], **members}
    params = {"message": message, "configuration": {"blocking": blocking}}
    return v03.read_send(params, Target(path_role=role), key=key)


async def frames(reading: Reading) -> list[dict[str, Any]]:
    return [{"cursor": one.cursor, **parse(one.event.body)} async for batch in reading for one in batch]


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with made_house() as house:
        yield house


@asynccontextmanager
async def made_house() -> AsyncIterator[House]:
    clock, forwarder, supervisor = MovableClock(), ScriptedForwarder(), Supervisor()
    guard = WebhookGuard((), [ip_network("127.0.0.0/8")], ())
    async with open_engine("memory:", clock=clock) as engine, Client(guard) as client:
        around = Surroundings(
            engine=engine,
            forwarder=forwarder,
            codec=Codec(clock.wall),
            router=Router(engine.registry, engine.tasks, default_role=None, dice=Random(7)),
            observer=Silent(),
            clock=clock,
            silence=timedelta(seconds=SILENCE),
        )
        webhooks, vault = HttpWebhooks(client, guard, clock.wall), SealingVault(random_key())
        deliveries = Deliveries(around, webhooks, vault, supervisor)
        push = Push(engine.pushes, webhooks, vault, deliveries, most=10)
        hub = Hub(around, supervisor, Limits(keep_alive=timedelta(seconds=0.05)), push)
        terms = Terms(TTL, timedelta(seconds=45))
        directory = Directory(
            engine.registry, forwarder, around.observer, terms, check_url=lambda url, networks: None, most=100, most_each=100
        )
        yield House(hub, directory, engine, forwarder, clock, supervisor, around, push)
        hub.drain()
        await supervisor.close()
