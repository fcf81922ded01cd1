"""The hub's own condition: whether it takes calls, and what its operators watch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hub.core.hub import Hub
from hub.core.observe import Figures, TokenLife
from hub.core.shares.descriptors import Descriptors
from hub.ports.audit import AuditLog
from hub.ports.clock import Clock
from hub.ports.identity import Tokens
from hub.ports.state.engine import DiskRoom, Engine
from rolecall.errors import DiskLow, StoreError
from rolecall.model.push import Backlog

_TOKENS_SHOWN = 100


class Checks(NamedTuple):
    """`disk`: it has more room than its reserve. `descriptors`: none was lacking lately. `tokens`: their file can be read, if
    there is one. `audit`: its last entry was written, if it is kept.
    """

    store: bool
    disk: bool
    taking_calls: bool
    descriptors: bool
    tokens: bool
    audit: bool


class Condition:
    """`audit_required`: no call is taken while the audit log cannot be written."""

    def __init__(
        self,
        hub: Hub,
        engine: Engine,
        descriptors: Descriptors,
        tokens: Tokens,
        clock: Clock,
        audit_log: AuditLog | None,
        *,
        audit_required: bool,
    ) -> None:
        self._hub = hub
        self._engine = engine
        self._descriptors = descriptors
        self._tokens = tokens
        self._clock = clock
        self._audit_log = audit_log
        self._audit_required = audit_required

    async def checks(self) -> Checks:
        store = disk = True
        try:
            await self._engine.ping()
        except DiskLow:
            disk = False
        except StoreError:
            store = False
        return Checks(
            store,
            disk,
            taking_calls=not self._hub.draining,
            descriptors=self._descriptors.enough,
            tokens=not self._tokens.problem,
            audit=self._audit_log is None or not self._audit_log.failure,
        )

    def missing(self, checks: Checks) -> Sequence[str]:
        """The checks without which no call is taken."""
        names = [name for name, holds in checks._asdict().items() if not holds]
        return names if self._audit_required else [name for name in names if name != "audit"]

    def disk_room(self) -> DiskRoom | None:
        return self._engine.disk_room()

    async def figures(self) -> Figures:
        room, backlog, now = self.disk_room(), await self._backlog(), self._clock.wall()
        tokens = self._tokens.end_times()[:_TOKENS_SHOWN]
        return Figures(
            checks=(await self.checks())._asdict(),
            disk_free=room.free if room is not None else None,
            disk_reserve=room.reserve if room is not None else None,
            owed=backlog.owed if backlog is not None else None,
            dead_letters=backlog.dead_letters if backlog is not None else None,
            audit_lost=self._audit_log.lost if self._audit_log is not None else 0,
            tokens=[TokenLife(end.id, end.holder, end.workspace, end.at - now) for end in tokens],
        )

    async def _backlog(self) -> Backlog | None:
        """None: the store cannot be read."""
        try:
            return await self._engine.pushes.backlog()
        except StoreError:
            return None
