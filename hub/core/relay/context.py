"""The parts that every relay needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from hub.core.files.inline import InlineFiles
from hub.core.observe import Observer
from hub.core.routing.failing import FailingWorkers
from hub.core.routing.router import Router
from hub.core.routing.waiting import WaitingCalls
from hub.core.shares.table import Shares
from hub.ports.clock import Clock
from hub.ports.codec import Codec
from hub.ports.forwarder import Forwarder
from hub.ports.state.engine import Engine


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The parts, and the limits of a task. A `deadline` of zero means none. `pause_grace`: how long a worker that does not
    answer keeps its paused tasks. `max_log` is in bytes, `max_log_events` in events. `token_is_valid`: see ports.identity.
    """

    engine: Engine
    forwarder: Forwarder
    codec: Codec
    router: Router
    failing: FailingWorkers
    waiting: WaitingCalls
    observer: Observer
    clock: Clock
    silence: timedelta
    deadline: timedelta = timedelta()
    pause_grace: timedelta = timedelta(hours=1)
    max_log: int = 64 * 1024 * 1024
    max_log_events: int = 1_000_000
    shares: Shares = field(default_factory=Shares)
    token_is_valid: Callable[[str], bool] = lambda _: True
    max_inline: int = 16 * 1024 * 1024

    def inline_files(self) -> InlineFiles:
        return InlineFiles(self.engine.files, self.codec, self.shares, self.max_inline)
