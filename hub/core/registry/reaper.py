"""Ends leases that have run out, doubts workers that have missed a beat, and asks before many go at once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta

from hub.core.registry.liveness import LATELY, about_to_end, missed_a_beat, next_look, too_many
from hub.ports.clock import Clock
from hub.ports.forwarder import Forwarder
from hub.ports.registry import Registry
from rolecall.model.worker import Health, Registration

log = logging.getLogger(__name__)

EVERY = 0.5
_ASKED_AT_ONCE = 200
_LOOKED_AT_IN_ONE_GO = 500
_WHILE_ASKING = timedelta(seconds=5)
_STORED_AT_ONCE = 200
MISSED = "it missed a heartbeat"

Role = tuple[str, str]


class LeaseReaper:
    """`heartbeat_of` tells how often a lease of that length is to be renewed."""

    def __init__(
        self, registry: Registry, forwarder: Forwarder, clock: Clock, *, heartbeat_of: Callable[[timedelta], timedelta]
    ) -> None:
        self._registry = registry
        self._forwarder = forwarder
        self._clock = clock
        self._heartbeat_of = heartbeat_of
        self._gone: dict[Role, deque[float]] = {}
        self._unanswered: set[tuple[str, int]] = set()
        self._looked: dict[Role, tuple[Sequence[Registration], float]] = {}

    async def look(self) -> None:
        """Once around. To be called every `EVERY` seconds."""
        seen: dict[Role, tuple[Sequence[Registration], float]] = {}
        for live in self._registry.everyone():
            role = _role_of(live[0])
            known = self._looked.get(role)
            if known is None or known[0] is not live or self._clock.monotonic() >= known[1]:
                known = live, await self._look_at(role, live)
                await asyncio.sleep(0)
            seen[role] = known
        self._looked = seen
        for ended in await self._registry.sweep():
            self._gone.setdefault(_role_of(ended), deque()).append(self._clock.monotonic())
            self._unanswered.discard(_lease(ended))

    async def _look_at(self, role: Role, registrations: Sequence[Registration]) -> float:
        """When it has to be looked at again, as long as it holds the same leases."""
        again, began = float("inf"), self._clock.monotonic()
        ending: list[Registration] = []
        doubted: list[Registration] = []
        for number, registration in enumerate(registrations, 1):
            if number % _LOOKED_AT_IN_ONE_GO == 0:
                await asyncio.sleep(0)
            left = self._registry.expires_in(registration)
            if left is None:
                continue
            ttl, seconds = registration.ttl.total_seconds(), left.total_seconds()
            heartbeat = self._heartbeat_of(registration.ttl).total_seconds()
            ready = registration.health is Health.READY
            again = min(again, next_look(ttl=ttl, left=seconds, heartbeat=heartbeat, look_every=EVERY, ready=ready))
            if ready and missed_a_beat(ttl=ttl, left=seconds, heartbeat=heartbeat):
                doubted.append(registration)
            if about_to_end(ttl=ttl, left=seconds, look_every=EVERY) and _lease(registration) not in self._unanswered:
                ending.append(registration)
        if doubted:
            await self._doubt(doubted[:_STORED_AT_ONCE])
        if ending:
            await self._ask(too_many(ending, live=len(registrations), gone_lately=self._gone_lately(role)))
        return began + again

    async def _doubt(self, doubted: Sequence[Registration]) -> None:
        marks = (self._registry.mark(r.workspace, r.worker, r.epoch, Health.SUSPECT, MISSED) for r in doubted)
        await asyncio.gather(*marks)

    async def _ask(self, doubtful: Sequence[Registration]) -> None:
        """Whoever accepts a connection stays for another heartbeat; who does not goes when its lease ends."""
        for registration in doubtful:
            self._hold(registration, _WHILE_ASKING)
        asked = doubtful[:_ASKED_AT_ONCE]
        answered = await asyncio.gather(*(self._forwarder.probe(r.offer) for r in asked))
        for registration, answers in zip(asked, answered, strict=True):
            if answers:
                self._hold(registration, self._heartbeat_of(registration.ttl))
            else:
                self._unanswered.add(_lease(registration))
        if asked:
            kept = sum(_lease(r) not in self._unanswered for r in asked)
            told = {"event": "leases_held", "role": asked[0].worker.role, "asked": len(asked), "kept": kept}
            log.warning("many leases end at once", extra=told)

    def _hold(self, registration: Registration, lasts: timedelta) -> None:
        self._registry.hold(registration.workspace, registration.worker, registration.epoch, lasts)

    def _gone_lately(self, role: Role) -> int:
        gone = self._gone.get(role)
        if gone is None:
            return 0
        since = self._clock.monotonic() - LATELY
        while gone and gone[0] < since:
            gone.popleft()
        if not gone:
            del self._gone[role]
        return len(gone)


def _role_of(registration: Registration) -> Role:
    return registration.workspace, registration.worker.role


def _lease(registration: Registration) -> tuple[str, int]:
    return f"{registration.workspace}/{registration.worker}", registration.epoch
