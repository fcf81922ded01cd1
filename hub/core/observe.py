"""What core reports about its own work. Core does not know who observes it; telemetry does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from rolecall.errors import HubError
from rolecall.model.a2a import TaskState
from rolecall.model.usage import Usage
from rolecall.model.worker import RegistryChange


class ShareUse(NamedTuple):
    """How much of a scarce thing is used now. `limit` 0: its number has none. `largest`: by the workspace that uses most.
    `waiting`: requests that wait for it; where none can wait, workspaces that were refused it lately.
    """

    thing: str
    limit: int
    used: int
    largest: int
    workspaces: int
    waiting: int
    refused: int


class TokenLife(NamedTuple):
    """`left`: seconds until the token ends."""

    id: str
    holder: str
    workspace: str
    left: float


class Figures(NamedTuple):
    """What is read when operators look, and not reported as it happens. None: there is no such thing, or it cannot be read now.
    `checks`: whether each is passed. `owed`: receivers of webhooks that lack events. `audit_lost`: entries that were not
    written.
    """

    checks: Mapping[str, bool]
    disk_free: int | None
    disk_reserve: int | None
    owed: int | None
    dead_letters: int | None
    audit_lost: int = 0
    tokens: Sequence[TokenLife] = ()


class Observer(Protocol):
    """Receives reports of what happened. Every method is a plain call, cheap enough for every event, and never raises.

    `role` may be a name that a caller made up: an observer that keeps state per role must bound it.
    `method` is the canonical name, the same for every dialect. Durations are in seconds.
    """

    def registry_changed(self, change: RegistryChange) -> None: ...

    def call_started(self, role: str, method: str) -> None: ...

    def call_ended(self, role: str, method: str, outcome: str, seconds: float) -> None:
        """`outcome`: ok, or the reason of the error in lower case. Once for each `call_started`."""

    def first_event(self, role: str, seconds: float) -> None:
        """From the call's arrival to the first event in the log."""

    def events_logged(self, role: str, count: int, size: int) -> None:
        """After the append; `size` in bytes."""

    def used(self, role: str, usage: Sequence[Usage]) -> None:
        """After the append of the events that report it. Models and currencies are texts of the worker."""

    def stream_opened(self, role: str) -> None: ...

    def stream_closed(self, role: str) -> None:
        """Once for each `stream_opened`, whichever side ended it."""

    def routed(self, role: str, rule: str, result: str) -> None:
        """`rule`: what chose the role or the worker: path, metadata, skill, context, default role, instance, owner, context
        affinity, context holder gone, context holder lacks the skill, panic, trial, failover. `result`: ok, or the class of the
        error; the rule is then "role".
        """

    def worker_failed(self, role: str, reason: str) -> None: ...

    def failed_over(self, role: str) -> None:
        """Another worker was tried, because the first one certainly did nothing."""

    def task_ended(self, role: str, state: TaskState, error: HubError | None) -> None:
        """`error`: why the hub gave it up; None: its worker or its caller ended it. Once for each task."""

    def dropped(self, role: str, what: str, count: int) -> None:
        """`what`: why events were not logged, such as "after the end", "foreign task" or "malformed usage"."""

    def pushed(self, outcome: str) -> None:
        """One attempt to deliver one event to a receiver: delivered, failed (it is retried), dead (given up)."""

    def push_caught_up(self, seconds: float) -> None:
        """A receiver has every event now; `seconds` since it first lacked one."""

    def file_bytes(self, direction: str, size: int) -> None:
        """Bytes of files: in (uploaded), out (read for whoever gets them)."""

    def connections(self, count: int) -> None:
        """How many connections are open and served now."""

    def refused(self, reason: str, workspace: str = "") -> None:
        """A request or a connection was refused before it became a call; `reason` of the error in lower case. `workspace`: of
        the caller; empty: not known.
        """

    def certificate(self, not_after: float) -> None:
        """The server's certificate, which callers are shown from now on, ends at `not_after`, a time of the wall clock."""

    def loop_lag(self, seconds: float) -> None: ...


class NullObserver:
    """Ignores every report."""

    def registry_changed(self, change: RegistryChange) -> None: ...
    def call_started(self, role: str, method: str) -> None: ...
    def call_ended(self, role: str, method: str, outcome: str, seconds: float) -> None: ...
    def first_event(self, role: str, seconds: float) -> None: ...
    def events_logged(self, role: str, count: int, size: int) -> None: ...
    def used(self, role: str, usage: Sequence[Usage]) -> None: ...
    def stream_opened(self, role: str) -> None: ...
    def stream_closed(self, role: str) -> None: ...
    def routed(self, role: str, rule: str, result: str) -> None: ...
    def worker_failed(self, role: str, reason: str) -> None: ...
    def failed_over(self, role: str) -> None: ...
    def task_ended(self, role: str, state: TaskState, error: HubError | None) -> None: ...
    def dropped(self, role: str, what: str, count: int) -> None: ...
    def pushed(self, outcome: str) -> None: ...
    def push_caught_up(self, seconds: float) -> None: ...
    def file_bytes(self, direction: str, size: int) -> None: ...
    def connections(self, count: int) -> None: ...
    def refused(self, reason: str, workspace: str = "") -> None: ...
    def certificate(self, not_after: float) -> None: ...
    def loop_lag(self, seconds: float) -> None: ...
