"""What core tells the outside about its own work, in plain words. Telemetry listens; core does not know who does."""

from __future__ import annotations

from typing import Protocol

from rolecall.model.worker import RegistryChange


class Observer(Protocol):
    """Hears what happened. Every method is a plain call, cheap enough for every event, and never raises.

    `role` may be a name that a caller made up: an observer that keeps something per role has to guard itself.
    `method` is the canonical name, the same for every dialect's spelling. Durations are seconds.
    """

    def registry_changed(self, change: RegistryChange) -> None: ...

    def call_started(self, role: str, method: str) -> None: ...

    def call_ended(self, role: str, method: str, outcome: str, seconds: float) -> None:
        """`outcome`: ok, or the reason of the error in lower case. Once for each `call_started`."""

    def first_event(self, role: str, seconds: float) -> None:
        """From the call's arrival to the first event in the log."""

    def events_logged(self, role: str, count: int, size: int) -> None:
        """After the append; `size` in bytes."""

    def stream_opened(self, role: str) -> None: ...

    def stream_closed(self, role: str) -> None:
        """Once for each `stream_opened`, whoever ended it."""

    def routed(self, role: str, rule: str, result: str) -> None:
        """`rule`: what chose the worker (owner, affinity, least-busy, pinned). `result`: ok, or why nobody was found."""

    def worker_failed(self, role: str, reason: str) -> None: ...

    def failed_over(self, role: str) -> None:
        """Another worker was tried because the first provably did nothing."""

    def dropped(self, role: str, what: str, count: int) -> None:
        """`what`: why events were not logged, such as after-the-end or not-a2a."""

    def pushed(self, outcome: str) -> None:
        """One attempt to tell a receiver of one event: delivered, failed (it is tried again), dead (given up)."""

    def push_caught_up(self, seconds: float) -> None:
        """A receiver has everything; since when it had lacked something."""

    def connections(self, count: int) -> None:
        """So many are open now and served."""

    def refused(self, reason: str) -> None:
        """A request, or a connection, was turned away before it became a call; `reason` of the error in lower case."""

    def loop_lag(self, seconds: float) -> None: ...


class NullObserver:
    """Listens and says nothing."""

    def registry_changed(self, change: RegistryChange) -> None: ...
    def call_started(self, role: str, method: str) -> None: ...
    def call_ended(self, role: str, method: str, outcome: str, seconds: float) -> None: ...
    def first_event(self, role: str, seconds: float) -> None: ...
    def events_logged(self, role: str, count: int, size: int) -> None: ...
    def stream_opened(self, role: str) -> None: ...
    def stream_closed(self, role: str) -> None: ...
    def routed(self, role: str, rule: str, result: str) -> None: ...
    def worker_failed(self, role: str, reason: str) -> None: ...
    def failed_over(self, role: str) -> None: ...
    def dropped(self, role: str, what: str, count: int) -> None: ...
    def pushed(self, outcome: str) -> None: ...
    def push_caught_up(self, seconds: float) -> None: ...
    def connections(self, count: int) -> None: ...
    def refused(self, reason: str) -> None: ...
    def loop_lag(self, seconds: float) -> None: ...
