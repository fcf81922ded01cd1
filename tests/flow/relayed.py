"""Shared helpers of the relay tests."""

from __future__ import annotations

import asyncio
from typing import Any

from rolecall.errors import WorkerBroke, WorkerUnreachable
from tests.flow.conftest import System
from tests.helpers.scripted import Step, status, task
from tests.helpers.watched_engine import Hold

CUT = WorkerBroke("echo:a", "cut")
REFUSED = WorkerUnreachable("echo:a", "http://w/", "connection refused")

PendingSend = asyncio.Task[dict[str, Any]]


def texts(document: dict[str, Any]) -> list[str]:
    """The texts of a task's artifacts."""
    return [part["text"] for artifact in document.get("artifacts", []) for part in artifact["parts"]]


def end(document: dict[str, Any]) -> tuple[str, str]:
    """The state of a task or status event, and the reason if the hub set it."""
    own = (document.get("metadata") or {}).get("rolecall") or {}
    return document["status"]["state"], own.get("reason", "")


def words(document: dict[str, Any]) -> str:
    """The message of a task's or event's status."""
    return str(document["status"]["message"]["parts"][0]["text"])


def gap_cursors(frames: list[dict[str, Any]]) -> list[int]:
    """Cursors of the frames before which events may be missing."""
    return [f["cursor"] for f in frames if ((f.get("metadata") or {}).get("rolecall") or {}).get("gap")]


async def asked(system: System, **offer: Any) -> str:
    """A paused task at echo:a."""
    await system.enrol("echo:a", **offer)
    system.forwarder.plan("echo:a", task(position="b.1"), status("input-required", "which?", position="b.2"))
    answer = await system.send()
    assert answer["status"]["state"] == "input-required"
    return str(answer["id"])


async def reaches(system: System, *steps: Step, then: tuple[Step, ...] = (), **members: Any) -> tuple[PendingSend, Hold]:
    """A blocking send to echo:a, which plays `steps`, stops at the hold, and then plays `then`."""
    hold = Hold()
    system.forwarder.plan("echo:a", *steps, hold, *then)
    pending = asyncio.create_task(system.send(**members))
    await hold.reached.wait()
    return pending, hold


async def moved(system: System, *steps: Step, refusal: Exception = REFUSED, **members: Any) -> PendingSend:
    """A blocking send that echo:a refuses. echo:b enrols before the refusal, and plays `steps`."""
    if steps:
        system.forwarder.plan("echo:b", *steps)
    refusal_hold = Hold()
    system.forwarder.plan("echo:a", refusal_hold, refusal)
    pending = asyncio.create_task(system.send(**members))
    await refusal_hold.reached.wait()
    await system.enrol("echo:b")
    refusal_hold.release()
    return pending
