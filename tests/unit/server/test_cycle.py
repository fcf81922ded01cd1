"""The memory of one request whose body is not read yet."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable

from hub.server.cycle import RequestCycle


class NullTransport:
    """Ignores everything."""

    closes_after_answer = write_paused = False

    def write(self, data: bytes) -> None: ...
    def on_drain(self, callback: Callable[[], None]) -> None: ...
    async def drain(self) -> None: ...
    def resume_reading(self) -> None: ...


def _cycle() -> RequestCycle:
    return RequestCycle(NullTransport(), asyncio.get_running_loop(), {}, keep_alive=True, expects_continue=False)


async def test_what_came_of_a_body_before_its_client_disconnected_is_read() -> None:
    cycle = _cycle()
    cycle.add_body(b"abc")
    cycle.disconnect()
    assert await cycle.receive() == {"type": "http.request", "body": b"abc", "more_body": True}
    assert await cycle.receive() == {"type": "http.disconnect"}


async def test_a_whole_request_whose_client_has_disconnected_is_not_read() -> None:
    cycle = _cycle()
    cycle.add_body(b"abc")
    cycle.finish()
    cycle.disconnect()
    assert await cycle.receive() == {"type": "http.disconnect"}


async def test_a_body_in_small_pieces_takes_no_more_memory_than_in_one_piece() -> None:
    cycle = _cycle()
    tracemalloc.start()
    try:
        for n in range(30_000):
            cycle.add_body(b"%02d" % (n % 100))
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 3 * cycle.unread
    cycle.finish()
    assert await cycle.receive() == {"type": "http.request", "body": _numbers(30_000), "more_body": False}


def _numbers(count: int) -> bytes:
    return b"".join(b"%02d" % (n % 100) for n in range(count))
