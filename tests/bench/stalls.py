"""How long an idle hub blocks its loop with sweeps: the longest time that a small request waits."""

from __future__ import annotations

import time
from http.client import HTTPConnection
from statistics import median

from tests.bench.figures import number
from tests.bench.proxies import Proxy

HEADS = ["", "p50 ms", "p99 ms", "longest ms"]
_PAUSE = 0.001


def loop_waits(hub: Proxy, *, repeats: int, seconds: float) -> tuple[list[str], float]:
    """A row of the table, and the longest wait in milliseconds: the median of `repeats`."""
    found = [sorted(_waits(hub.port, seconds)) for _ in range(repeats)]
    median_wait, late, longest = (
        median(waits_found[min(int(len(waits_found) * part), len(waits_found) - 1)] for waits_found in found)
        for part in (0.5, 0.99, 1)
    )
    return [hub.name, *(number(wait) for wait in (median_wait, late, longest))], longest


def _waits(port: int, seconds: float) -> list[float]:
    """Milliseconds that GET /livez took, each time, over one connection."""
    waits = []
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    deadline = time.perf_counter() + seconds
    try:
        while (began := time.perf_counter()) < deadline:
            connection.request("GET", "/livez")
            connection.getresponse().read()
            waits.append((time.perf_counter() - began) * 1000)
            time.sleep(_PAUSE)
    finally:
        connection.close()
    return waits
