"""Ends expired leases, marks workers that missed a beat as suspect, and probes before many leases end at once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta

from hub.core.registry.liveness import RECENT, about_to_end, missed_a_beat, next_look, too_many
from hub.ports.clock import Clock
from hub.ports.forwarder import Forwarder
from hub.ports.state.registry import Registry
from rolecall.errors import Overloaded
from rolecall.model.worker import Health, Registration

log = logging.getLogger(__name__)

EVERY = 0.5
_PROBES_AT_ONCE = 200
_LOOKS_PER_STEP = 500
_WHILE_PROBING = timedelta(seconds=5)
_STORED_AT_ONCE = 200
MISSED = "it missed a heartbeat"

Role = tuple[str, str]


class LeaseReaper:
    """`heartbeat_of`: how often a lease of that length must be renewed."""

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
        """Look at all leases once. Called every `EVERY` seconds."""
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
        """Returns when to look again, if the role still has the same leases."""
        again, began = float("inf"), self._clock.monotonic()
        ending: list[Registration] = []
        late: list[Registration] = []
        for number, registration in enumerate(registrations, 1):
            if number % _LOOKS_PER_STEP == 0:
                await asyncio.sleep(0)
            left = self._registry.expires_in(registration)
            if left is None:
                continue
            ttl, seconds = registration.ttl.total_seconds(), left.total_seconds()
            heartbeat = self._heartbeat_of(registration.ttl).total_seconds()
            ready = registration.health is Health.READY
            again = min(again, next_look(ttl=ttl, left=seconds, heartbeat=heartbeat, look_every=EVERY, ready=ready))
            if ready and missed_a_beat(ttl=ttl, left=seconds, heartbeat=heartbeat):
                late.append(registration)
            if about_to_end(ttl=ttl, left=seconds, look_every=EVERY) and _lease(registration) not in self._unanswered:
                ending.append(registration)
        if late:
            await self._doubt(late[:_STORED_AT_ONCE])
        if ending:
            await self._probe(too_many(ending, live=len(registrations), recent_count=self._recent_count(role)))
        return began + again

    async def _doubt(self, late: Sequence[Registration]) -> None:
        marks = (self._registry.mark(r.workspace, r.worker, r.epoch, Health.SUSPECT, MISSED) for r in late)
        await asyncio.gather(*marks)

    async def _probe(self, candidates: Sequence[Registration]) -> None:
        """A worker that accepts a connection keeps its lease for another heartbeat; another one loses it when it expires."""
        for registration in candidates:
            self._hold(registration, _WHILE_PROBING)
        probed = candidates[:_PROBES_AT_ONCE]
        answered = await asyncio.gather(*map(self._answers, probed))
        for registration, answers in zip(probed, answered, strict=True):
            if answers:
                self._hold(registration, self._heartbeat_of(registration.ttl))
            else:
                self._unanswered.add(_lease(registration))
        if probed:
            kept = sum(_lease(r) not in self._unanswered for r in probed)
            fields = {"event": "leases_held", "role": probed[0].worker.role, "asked": len(probed), "kept": kept}
            log.warning("many leases end at once", extra=fields)

    async def _answers(self, registration: Registration) -> bool:
        try:
            return await self._forwarder.probe(registration.workspace, registration.offer)
        except Overloaded:
            return True  # it could not be asked

    def _hold(self, registration: Registration, lasts: timedelta) -> None:
        self._registry.hold(registration.workspace, registration.worker, registration.epoch, lasts)

    def _recent_count(self, role: Role) -> int:
        gone = self._gone.get(role)
        if gone is None:
            return 0
        since = self._clock.monotonic() - RECENT
        while gone and gone[0] < since:
            gone.popleft()
        if not gone:
            del self._gone[role]
        return len(gone)


def _role_of(registration: Registration) -> Role:
    return registration.workspace, registration.worker.role


def _lease(registration: Registration) -> tuple[str, int]:
    return f"{registration.workspace}/{registration.worker}", registration.epoch
