"""Resolves names in threads of its own. By hand, because neither the loop's resolver nor a thread pool can give a workspace its
part, and both make a process that ends wait for names that never resolve.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from socket import getaddrinfo
from typing import NamedTuple

from hub.ports.shares import Slots
from rolecall.errors import Overloaded

Resolve = Callable[[str, str, int], Awaitable[Sequence[str]]]
"""The addresses of a name, for a workspace. OSError, Overloaded."""

_TIMEOUT = 5.0
_REMEMBERED = 5.0
_MOST_REMEMBERED = 1024


class _Found(NamedTuple):
    """An error is not raised where it would refer to the lookup that keeps it."""

    addresses: Sequence[str] = ()
    error: OSError | Overloaded | None = None

    def unpack(self) -> Sequence[str]:
        if isinstance(self.error, Overloaded):
            raise self.error.copy()
        if self.error is not None:
            raise type(self.error)(*self.error.args)
        return self.addresses


class Resolver:
    """`slots`: the threads. A name that nobody answers for keeps its thread until the system gives it up."""

    def __init__(self, slots: Slots | None = None, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._slots = slots
        self._monotonic = monotonic
        self._running: dict[tuple[str, str, int], tuple[float, asyncio.Task[_Found]]] = {}
        """When each lookup began. All who ask in the same workspace share it."""
        self._unknown: OrderedDict[str, tuple[float, _Found]] = OrderedDict()
        """Until when a name is known to have no address."""

    async def resolve(self, workspace: str, host: str, port: int) -> Sequence[str]:
        """OSError, within seconds; Overloaded: too many names of that workspace wait for a thread."""
        now = self._monotonic()
        until, known = self._unknown.get(host, (0.0, _Found()))
        if until > now:
            return known.unpack()
        key = (workspace, host, port)
        began, lookup = self._running.get(key, (now, None))
        if lookup is None:
            lookup = asyncio.create_task(self._look_up(workspace, host, port), name=f"lookup of {host}")
            self._running[key] = (now, lookup)
            lookup.add_done_callback(lambda done: self._ended(key, done))
        async with asyncio.timeout(began + _TIMEOUT - now):
            found = await asyncio.shield(lookup)
        return found.unpack()

    async def aclose(self) -> None:
        lookups = [lookup for _, lookup in self._running.values()]
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)

    async def _look_up(self, workspace: str, host: str, port: int) -> _Found:
        try:
            async with self._slots.slot(workspace) if self._slots is not None else nullcontext():
                return await _in_thread(host, port)
        except Overloaded as error:
            return _Found(error=error.copy())

    def _ended(self, key: tuple[str, str, int], lookup: asyncio.Task[_Found]) -> None:
        del self._running[key]
        if not lookup.cancelled() and isinstance(lookup.result().error, socket.gaierror):
            _, host, _ = key
            self._unknown[host] = (self._monotonic() + _REMEMBERED, lookup.result())
            self._unknown.move_to_end(host)
            if len(self._unknown) > _MOST_REMEMBERED:
                self._unknown.popitem(last=False)


async def _in_thread(host: str, port: int) -> _Found:
    """Nothing ends a lookup, so its slot is given back when its thread ends. The process does not wait for it."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[_Found] = loop.create_future()

    def tell(found: _Found) -> None:
        if not outcome.done():
            outcome.set_result(found)

    def look_up() -> None:
        found = _ask_system(host, port)
        try:
            loop.call_soon_threadsafe(tell, found)
        except RuntimeError:
            pass  # the loop is closed

    threading.Thread(target=look_up, name=f"lookup of {host}", daemon=True).start()
    return await outcome


def _ask_system(host: str, port: int) -> _Found:
    try:
        answers = getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return _Found(error=type(error)(*error.args))
    except UnicodeError:
        return _Found(error=socket.gaierror(socket.EAI_NONAME, "not a host name"))
    return _Found(list(dict.fromkeys(str(where[0]) for _, _, _, _, where in answers)))
