"""For scripts and notebooks: `from rolecall.sync import HubClient`. The same client without `await`."""

from __future__ import annotations

from worker_sdk.calling.blocking.client import HubClient
from worker_sdk.calling.blocking.loop import HubFeed, HubStream

__all__ = ["HubClient", "HubFeed", "HubStream"]
