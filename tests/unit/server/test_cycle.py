"""One request on a line, and what it holds while nobody looks at it."""

from __future__ import annotations

import asyncio
import tracemalloc

from hub.server.cycle import RequestCycle


class Deaf:
    """A line that nothing is said on."""

    ends = False

    def write(self, data: bytes) -> None: ...
    async def drained(self) -> None: ...
    def want_more(self) -> None: ...


async def test_a_body_in_crumbs_takes_no_more_room_than_in_one_piece() -> None:
    cycle = RequestCycle(Deaf(), asyncio.get_running_loop(), {}, keeps=True, expects=False)
    tracemalloc.start()
    try:
        for n in range(30_000):
            cycle.take(b"%02d" % (n % 100))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3 * cycle.unread
    cycle.finish()
    assert await cycle.receive() == {"type": "http.request", "body": _crumbs(30_000), "more_body": False}


def _crumbs(count: int) -> bytes:
    return b"".join(b"%02d" % (n % 100) for n in range(count))
