"""The registry of the memory engine: only the lease table."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta

from hub.ports.clock import Clock
from hub.storage.common.feed import KEPT
from hub.storage.common.leases import Key, LeaseChange, LeaseTable, health_after
from rolecall.errors import LeaseUnknown
from rolecall.model.ids import WorkerId
from rolecall.model.worker import Beat, EndedLease, Health, LeaseProof, Offer, Registration


class MemoryRegistry(LeaseTable):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, hub_secret=os.urandom(32))
        self._ended_leases: dict[Key, EndedLease] = {}

    async def enrol(
        self,
        workspace: str,
        offer: Offer,
        *,
        owner: str = "",
        token: str = "",
        boot: str,
        ttl: timedelta,
        supersede: bool = False,
    ) -> Registration:
        registration = self._apply_now(
            self.decide_enrol(workspace, offer, owner=owner, token=token, boot=boot, ttl=ttl, supersede=supersede)
        )
        if registration is None:
            raise LeaseUnknown
        return registration

    async def beat(
        self, workspace: str, worker: WorkerId, proof: LeaseProof, beat: Beat, *, token: str | None = None
    ) -> Registration:
        registration = self.renew(workspace, worker, proof, beat, token)
        await self.mark(workspace, worker, registration.epoch, health_after(registration, beat), "")
        return registration

    async def withdraw(self, workspace: str, worker: WorkerId, proof: LeaseProof) -> None:
        self._apply_now(self.decide_withdraw(workspace, worker, proof))

    async def mark(self, workspace: str, worker: WorkerId, epoch: int, health: Health, reason: str) -> None:
        change = self.decide_mark(workspace, worker, epoch, health, reason)
        if change is not None:
            self._apply_now(change)

    async def undrain(self, workspace: str, worker: WorkerId, epoch: int) -> None:
        change = self.decide_undrain(workspace, worker, epoch)
        if change is not None:
            self._apply_now(change)

    async def change_offer(self, workspace: str, worker: WorkerId, epoch: int, change: Callable[[Offer], Offer]) -> None:
        decided = self.decide_offer(workspace, worker, epoch, change)
        if decided is not None:
            self._apply_now(decided)

    async def sweep(self) -> Sequence[Registration]:
        ended = [self._apply_now(change) for change in self.decide_all_expired()]
        return [registration for registration in ended if registration is not None]

    async def ended(self, workspace: str, worker: WorkerId) -> EndedLease | None:
        return self._ended_leases.get((workspace, worker))

    def _apply_now(self, change: LeaseChange) -> Registration | None:
        first, before = self._feed.revision(change.key[0]) + 1, self._leases.get(change.key)
        registration = self.apply(change, range(first, first + len(change.pending)))
        if before is not None and self._leases.get(change.key) is not before:
            old = before.registration
            self._ended_leases.pop(change.key, None)
            self._ended_leases[change.key] = EndedLease(old.offer, old.epoch, old.boot, change.withdrawn, old.token)
            if len(self._ended_leases) > KEPT:
                del self._ended_leases[next(iter(self._ended_leases))]
        return registration
