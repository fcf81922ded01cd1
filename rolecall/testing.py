"""Test a worker without a port and without a hub: `async with worker.test() as bench:` gives a `Bench`."""

from __future__ import annotations

from worker_sdk.testing.bench import Bench

__all__ = ["Bench"]
