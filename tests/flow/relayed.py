"""What the tests of the relay share: ways in which a call goes, and how its end reads."""

from __future__ import annotations

import asyncio
from typing import Any

from rolecall.errors import WorkerBroke, WorkerUnreachable
from tests.flow.conftest import House
from tests.helpers.scripted import Step, status, task
from tests.helpers.watched_engine import Hold

CUT = WorkerBroke("echo:a", "cut")
REFUSED = WorkerUnreachable("echo:a", "http://w/", "connection refused")

Sending = asyncio.Task[dict[str, Any]]


def texts(document: dict[str, Any]) -> list[str]:
    """Of a task's artifacts."""
    return [part["text"] for artifact in document.get("artifacts", []) for part in artifact["parts"]]


def end(document: dict[str, Any]) -> tuple[str, str]:
    """The state of a task or status event, and the hub's reason for it if it is the hub's."""
    own = (document.get("metadata") or {}).get("rolecall") or {}
    return document["status"]["state"], own.get("reason", "")


def words(document: dict[str, Any]) -> str:
    """The message of a task's or event's status."""
    return str(document["status"]["message"]["parts"][0]["text"])


def gaps(frames: list[dict[str, Any]]) -> list[int]:
    """Cursors of the frames before which events may be missing."""
    return [f["cursor"] for f in frames if ((f.get("metadata") or {}).get("rolecall") or {}).get("gap")]


async def asked(house: House, **offer: Any) -> str:
    """A task at echo:a that waits for its caller."""
    await house.enrol("echo:a", **offer)
    house.forwarder.plan("echo:a", task(position="b.1"), status("input-required", "which?", position="b.2"))
    answer = await house.send()
    assert answer["status"]["state"] == "input-required"
    return str(answer["id"])


async def reaches(house: House, *steps: Step, then: tuple[Step, ...] = (), **members: Any) -> tuple[Sending, Hold]:
    """A blocking send to echo:a that plays `steps`, stops at the hold, and then plays `then`."""
    hold = Hold()
    house.forwarder.plan("echo:a", *steps, hold, *then)
    sending = asyncio.create_task(house.send(**members))
    await hold.reached.wait()
    return sending, hold


async def moved(house: House, *steps: Step, refusal: Exception = REFUSED, **members: Any) -> Sending:
    """A blocking send that echo:a refuses. echo:b, if it has enrolled by `await`, plays `steps`."""
    if steps:
        house.forwarder.plan("echo:b", *steps)
    refuses = Hold()
    house.forwarder.plan("echo:a", refuses, refusal)
    sending = asyncio.create_task(house.send(**members))
    await refuses.reached.wait()
    await house.enrol("echo:b")
    refuses.release()
    return sending
