"""The parts of a running hub."""

from __future__ import annotations

from dataclasses import dataclass

from hub.core.hub import Hub
from hub.core.push.configs import PushConfigs
from hub.core.registry.directory import Directory
from hub.core.shares.growth import GrowthWatch
from hub.core.shares.table import Shares
from hub.core.supervisor import Supervisor
from hub.held_agents import HeldAgents
from hub.ports.state.engine import Engine
from hub.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Rolecall:
    hub: Hub
    directory: Directory
    engine: Engine
    push: PushConfigs
    shares: Shares
    disk_growth: GrowthWatch
    observer: Metrics
    agents: HeldAgents
    supervisor: Supervisor
    max_connections: int
    """How many connections to the hub its process can have."""

    def drain(self) -> None:
        """Take no new calls; end all waiting calls, streams and feeds."""
        self.hub.drain()
        self.directory.end_feeds()
