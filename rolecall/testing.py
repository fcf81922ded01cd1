"""A worker under test, without port and hub: `async with worker.test() as bench:` gives a `Bench`."""

from __future__ import annotations

from worker_sdk.testing import Bench

__all__ = ["Bench"]
