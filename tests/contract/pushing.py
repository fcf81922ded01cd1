"""Shared helpers of the outbox tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from hub.ports.state.engine import Engine
from hub.ports.state.pushes import DeliveryClaim, DeliveryRoom
from rolecall.model.ids import Cursor, TaskId
from rolecall.model.push import SealedConfig
from tests.contract.words import ANNA

LEASE = timedelta(seconds=30)
NOTHING = timedelta()
DAY = timedelta(days=1)


def a_config(task: TaskId, name: str = "c", **members: Any) -> SealedConfig:
    usual: dict[str, Any] = {"url": "https://app.example/hook", "host": "app.example", "dialect": "0.3"}
    return SealedConfig(task, name, **{**usual, **members})


async def add_config(engine: Engine, task: TaskId, name: str = "c", **members: Any) -> None:
    await engine.pushes.set(ANNA, a_config(task, name, **members), limit=10)


async def claimed(
    engine: Engine,
    limit: int = 10,
    *,
    lease: timedelta = LEASE,
    at_once: int = 10,
    per_workspace: int = 1000,
    busy: Mapping[str, int] | None = None,
) -> Sequence[DeliveryClaim]:
    """`busy`: of Anna's workspace, by host."""
    by_host = {(ANNA.workspace, host): count for host, count in (busy or {}).items()}
    return await engine.pushes.claim(DeliveryRoom(limit, per_workspace, at_once, by_host), lease)


async def the_claim(engine: Engine) -> DeliveryClaim:
    (claim,) = await claimed(engine)
    return claim


async def owed(engine: Engine, limit: int = 10, **more: Any) -> list[tuple[str, int, int]]:
    """Claim everything; per config its id, what it has, and what it is owed."""
    return sorted((claim.config.id, claim.sent, claim.last) for claim in await claimed(engine, limit, **more))


async def buried(engine: Engine, task: TaskId, cursor: int = 1, reason: str = "HTTP 404") -> None:
    claim = await the_claim(engine)
    await engine.pushes.bury(claim, Cursor(cursor), reason, hold=NOTHING)
    assert claim.config.task == task
