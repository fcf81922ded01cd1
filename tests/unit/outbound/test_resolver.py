"""Names are resolved in a bounded number of threads, of which each workspace has a part, and within seconds."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from hub.core.shares.slots import WorkspaceSlots
from hub.outbound.resolver import Resolver
from rolecall.errors import Overloaded
from tests.helpers.clock import ManualClock
from tests.helpers.cycles import no_cycles_of

PUBLIC = "93.184.215.14"


class NameServer:
    """Stands in for the system: a name that begins with `slow` has no answer until `answer`, `no` has none at all."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = threading.Event()

    def getaddrinfo(self, host: str, port: int, **_: Any) -> Sequence[tuple[Any, ...]]:
        self.asked.append(host)
        if host.startswith("slow"):
            self.answer.wait(10)
        if host.startswith("no"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if host.startswith("full"):
            raise OSError(24, "Too many open files")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (PUBLIC, port))] * 2


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> NameServer:
    names = NameServer()
    monkeypatch.setattr("hub.outbound.resolver.getaddrinfo", names.getaddrinfo)
    monkeypatch.setattr("hub.outbound.resolver._TIMEOUT", 0.1)
    return names


@pytest.fixture
async def resolver(names: NameServer) -> AsyncIterator[Resolver]:
    resolver = Resolver(slots())
    yield resolver
    names.answer.set()
    await resolver.aclose()


def slots(queue: int = 100) -> WorkspaceSlots:
    return WorkspaceSlots("lookups of names", 4, queue=queue, setting="max_at_once", per_workspace=2)


async def test_a_name_has_each_of_its_addresses_once(resolver: Resolver) -> None:
    assert await resolver.resolve("a", "worker.example", 80) == [PUBLIC]


async def test_a_slow_name_ends_in_time_and_delays_only_names_of_its_workspace(resolver: Resolver, names: NameServer) -> None:
    loop = asyncio.get_running_loop()
    slow = [asyncio.create_task(resolver.resolve("a", f"slow{number}", 80)) for number in range(20)]
    await asyncio.sleep(0)
    began = loop.time()
    for number in range(10):
        assert await resolver.resolve("b", f"worker{number}", 80) == [PUBLIC]
    assert loop.time() - began < 0.08
    assert {type(answer) for answer in await asyncio.gather(*slow, return_exceptions=True)} == {TimeoutError}
    assert len([name for name in names.asked if name.startswith("slow")]) == 2
    with pytest.raises(TimeoutError):
        await resolver.resolve("a", "worker", 80)
    names.answer.set()
    assert await resolver.resolve("a", "other", 80) == [PUBLIC]


async def test_all_who_ask_for_a_name_share_one_lookup_and_do_not_wait_again_for_one_that_is_late(
    resolver: Resolver, names: NameServer
) -> None:
    loop = asyncio.get_running_loop()
    waiting = [asyncio.create_task(resolver.resolve("a", "slow", 80)) for _ in range(5)]
    waiting[0].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    began = loop.time()
    with pytest.raises(TimeoutError):
        await resolver.resolve("a", "slow", 80)
    assert loop.time() - began < 0.05
    assert names.asked == ["slow"]
    names.answer.set()
    await asyncio.sleep(0.05)
    assert await resolver.resolve("a", "slow", 80) == [PUBLIC]


async def test_a_name_without_an_address_is_remembered_for_a_moment_and_others_are_not(names: NameServer) -> None:
    clock = ManualClock()
    resolver = Resolver(slots(), monotonic=clock.monotonic)
    for host, errors in (("no.example", socket.gaierror), ("full.example", OSError)):
        for _ in range(3):
            with pytest.raises(errors) as failed:
                await resolver.resolve("a", host, 80)
            assert failed.value.errno == (socket.EAI_NONAME if host == "no.example" else 24)
    assert names.asked == ["no.example", *["full.example"] * 3]
    with pytest.raises(socket.gaierror):
        await resolver.resolve("b", "no.example", 443)
    clock.advance(5.1)
    with pytest.raises(socket.gaierror):
        await resolver.resolve("a", "no.example", 80)
    assert names.asked.count("no.example") == 2


async def test_what_is_remembered_is_bounded(names: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.outbound.resolver._MOST_REMEMBERED", 3)
    resolver = Resolver()
    for host in ("no0", "no1", "no2", "no3", "no3", "no0"):
        with pytest.raises(socket.gaierror):
            await resolver.resolve("a", host, 80)
    assert names.asked == ["no0", "no1", "no2", "no3", "no0"]


async def test_a_workspace_may_have_so_many_names_waiting(names: NameServer) -> None:
    resolver = Resolver(slots(queue=3))
    slow = [asyncio.create_task(resolver.resolve("a", f"slow{number}", 80)) for number in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="ROLECALL_MAX_AT_ONCE"):
        await resolver.resolve("a", "slow5", 80)
    assert await resolver.resolve("b", "worker", 80) == [PUBLIC]
    names.answer.set()
    await asyncio.gather(*slow, return_exceptions=True)
    await resolver.aclose()


async def test_a_failed_lookup_is_freed_at_once(names: NameServer) -> None:
    resolver = Resolver(slots(queue=1))
    with no_cycles_of(OSError, Overloaded):
        slow = [asyncio.create_task(resolver.resolve("a", f"slow{number}", 80)) for number in range(5)]
        for host in ("no.example", "full.example"):
            with suppress(OSError):
                await resolver.resolve("b", host, 80)
        await asyncio.wait(slow)
        names.answer.set()
        del slow
        await asyncio.sleep(0.05)


async def test_text_that_is_no_host_name_has_no_address() -> None:
    with pytest.raises(socket.gaierror):
        await Resolver().resolve("a", "x" * 64 + ".invalid", 80)
