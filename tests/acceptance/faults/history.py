"""One record per call, written by the client that made it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Record:
    """One call: the request, every received frame in order, and how it ended."""

    message_id: str
    role: str
    many: int
    streamed: bool
    frames: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    task: str = ""
    state: str = ""
    refusal: str = ""
    """The reason of an error for a call that was not started."""
    resumed: int = 0
    ended: bool = False
    answer: dict[str, Any] = field(default_factory=dict)
    """The task as the hub returns it after the run."""

    @property
    def expected(self) -> list[str]:
        return [f"{n} " for n in range(self.many)] if self.role == "counter" else ["ha"] * self.many

    @property
    def chunks(self) -> list[str]:
        updates = [event for _, event in self.frames if event["kind"] == "artifact-update"]
        return [part["text"] for update in updates for part in update["artifact"]["parts"] if part["text"]]


@dataclass
class History:
    """All calls of a run, and how often workers executed each message."""

    seed: int
    records: list[Record] = field(default_factory=list)
    run_counts: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
