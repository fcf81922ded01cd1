"""How long a hub holds its loop when it has nothing to do but sweep: what a small question waits at most."""

from __future__ import annotations

import time
from http.client import HTTPConnection
from statistics import median

from tests.bench.figures import number
from tests.bench.proxies import Proxy

HEADS = ["", "p50 ms", "p99 ms", "longest ms"]
_PAUSE = 0.001


def held(hub: Proxy, *, tries: int, seconds: float) -> tuple[list[str], float]:
    """A line of the table, and the longest wait in milliseconds: the median of tries."""
    found = [sorted(_waits(hub.port, seconds)) for _ in range(tries)]
    middle, late, longest = (
        median(each[min(int(len(each) * part), len(each) - 1)] for each in found) for part in (0.5, 0.99, 1)
    )
    return [hub.name, *(number(wait) for wait in (middle, late, longest))], longest


def _waits(port: int, seconds: float) -> list[float]:
    """Milliseconds that GET /livez took, each time, over one connection."""
    waits = []
    line = HTTPConnection("127.0.0.1", port, timeout=30)
    ends = time.perf_counter() + seconds
    try:
        while (began := time.perf_counter()) < ends:
            line.request("GET", "/livez")
            line.getresponse().read()
            waits.append((time.perf_counter() - began) * 1000)
            time.sleep(_PAUSE)
    finally:
        line.close()
    return waits
