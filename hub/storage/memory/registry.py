"""The registry of the memory engine: the lease table, and nothing behind it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta

from hub.ports.clock import Clock
from hub.storage.common.leases import LeaseChange, LeaseTable, health_after
from rolecall.errors import LeaseUnknown
from rolecall.model.ids import WorkerId
from rolecall.model.worker import Beat, Health, LeaseProof, Offer, Registration


class MemoryRegistry(LeaseTable):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, hub_secret=os.urandom(32))

    async def enrol(
        self, workspace: str, offer: Offer, *, owner: str = "", boot: str, ttl: timedelta, supersede: bool = False
    ) -> Registration:
        taken = self._do(self.decide_enrol(workspace, offer, owner=owner, boot=boot, ttl=ttl, supersede=supersede))
        if taken is None:
            raise LeaseUnknown
        return taken

    async def beat(
        self, workspace: str, worker: WorkerId, proof: LeaseProof, beat: Beat, *, ttl: timedelta | None = None
    ) -> Registration:
        registration = self.renew(workspace, worker, proof, beat, ttl)
        await self.mark(workspace, worker, registration.epoch, health_after(registration, beat), "")
        return registration

    async def withdraw(self, workspace: str, worker: WorkerId, proof: LeaseProof) -> None:
        self._do(self.decide_withdraw(workspace, worker, proof))

    async def mark(self, workspace: str, worker: WorkerId, epoch: int, health: Health, reason: str) -> None:
        step = self.decide_mark(workspace, worker, epoch, health, reason)
        if step is not None:
            self._do(step)

    async def sweep(self) -> Sequence[Registration]:
        ended = [self._do(step) for step in self.decide_expiries()]
        return [registration for registration in ended if registration is not None]

    def _do(self, step: LeaseChange) -> Registration | None:
        first = self._feed.revision + 1
        return self.apply(step, range(first, first + len(step.drafts)))
