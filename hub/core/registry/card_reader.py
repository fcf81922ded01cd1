"""Reads the cards of workers that enrolled with a URL alone: at once, every few minutes, and when an operator asks.

What is known of a reading is in the worker's `Registration`, so it ends with the lease, and with the hub: after a restart
every such card is read again. The card itself is in the offer, and stays while its server cannot be asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from random import Random

from hub.core.supervisor import Supervisor
from hub.ports.card_source import CardAnswer, CardSource, Reach
from hub.ports.clock import Clock
from hub.ports.shares import Slots
from hub.ports.state.registry import Registry
from rolecall.errors import StoreUnavailable
from rolecall.model.ids import WorkerId
from rolecall.model.worker import CardState, Offer, Registration

log = logging.getLogger(__name__)

_LOOK_EVERY = 1.0
_FIRST_PAUSE, _GROWTH = 5.0, 4
"""After a failure: seconds until the next attempt, and how much longer each one is. Never longer than `refresh`."""
_JITTER = 0.1
_NOT_STORED = "the hub could not store it"


class CardReader:
    """`slots`: how many cards are read at once. `refresh`: how often a card is read again."""

    def __init__(
        self,
        registry: Registry,
        source: CardSource,
        clock: Clock,
        supervisor: Supervisor,
        slots: Slots,
        *,
        refresh: timedelta,
        rng: Random | None = None,
    ) -> None:
        self._registry = registry
        self._source = source
        self._clock = clock
        self._supervisor = supervisor
        self._slots = slots
        self._refresh = refresh.total_seconds()
        self._rng = rng or Random()
        self._reading: set[tuple[str, WorkerId, int]] = set()
        self._looked: dict[tuple[str, str], tuple[Sequence[Registration], float]] = {}

    async def watch(self) -> None:
        """Run forever: begin each reading that is due."""
        while True:
            seen: dict[tuple[str, str], tuple[Sequence[Registration], float]] = {}
            for live in self._registry.everyone():
                role = live[0].workspace, live[0].worker.role
                known = self._looked.get(role)
                if known is None or known[0] is not live or self._clock.monotonic() >= known[1]:
                    known = live, min(map(self.look_at, live))
                    await asyncio.sleep(0)
                seen[role] = known
            self._looked = seen
            await asyncio.sleep(_LOOK_EVERY)

    def look_at(self, registration: Registration) -> float:
        """Begin to read its card, if that is due. Returns when to look again."""
        if not registration.offer.card_by_url:
            return float("inf")
        state, now = registration.card_state, self._clock.monotonic()
        if state is not None and state.worker_url == registration.offer.url and now < state.due:
            return state.due
        self.read_again(registration)
        return now

    def read_again(self, registration: Registration) -> None:
        """Begin to read its card now. No effect if it sent one, or is being read."""
        key = registration.workspace, registration.worker, registration.epoch
        if registration.offer.card_by_url and key not in self._reading:
            self._reading.add(key)
            job = self._read(registration)
            self._supervisor.run_once(f"card of {registration.worker}", job, then=lambda: self._reading.discard(key))

    async def ask(self, workspace: str, offer: Offer, known: CardState | None) -> CardAnswer:
        """Ask for a card when it is the workspace's turn."""
        async with self._slots.slot(workspace):
            return await self._source.read(workspace, offer, known)

    async def keep(self, registration: Registration, asked: Offer, answer: CardAnswer) -> None:
        """Keep what was answered to `asked`. If its URL is another by now, the next look has the new one read."""
        state = self._after(registration.card_state, asked.url, answer)
        if answer.offer is not None:
            try:
                await self._change(registration, answer.offer)
            except StoreUnavailable:
                state = self._after(registration.card_state, asked.url, CardAnswer(Reach.NOT_ASKED, _NOT_STORED))
        self._report(registration, state)
        registration.card_state = state

    async def _read(self, registration: Registration) -> None:
        asked = registration.offer
        answer = await self.ask(registration.workspace, asked, registration.card_state)
        await self.keep(registration, asked, answer)

    async def _change(self, registration: Registration, found: Offer) -> None:
        def change(current: Offer) -> Offer:
            same = current.card_by_url and current.url == found.url
            return current.with_card_of(found) if same else current

        await self._registry.change_offer(registration.workspace, registration.worker, registration.epoch, change)

    def _after(self, before: CardState | None, worker_url: str, answer: CardAnswer) -> CardState:
        now = self._clock.monotonic()
        if answer.url:
            pause = self._refresh * (1 + _JITTER * (2 * self._rng.random() - 1))
            return CardState(worker_url, answer.url, answer.etag, self._clock.wall(), answer.note, now + pause)
        known = before if before is not None and before.worker_url == worker_url else CardState(worker_url)
        pause = min(_FIRST_PAUSE * _GROWTH**known.failures, self._refresh)
        failures = min(known.failures + 1, 10)
        return CardState(worker_url, known.url, known.etag, known.read_at, answer.note, now + pause, failures)

    def _report(self, registration: Registration, state: CardState) -> None:
        """Log the first reading, and each other outcome."""
        before = registration.card_state
        if before is not None and (before.note, bool(before.read_at)) == (state.note, bool(state.read_at)):
            return
        fields = {"event": "card_read", "worker": str(registration.worker), "workspace": registration.workspace}
        if state.failures:
            log.warning("card not read", extra={**fields, "event": "card_not_read", "why": state.note})
        else:
            log.info("card read", extra={**fields, "url": state.url, "note": state.note})
