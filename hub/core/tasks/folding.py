"""Folds long logs page by page, in a thread of its own: no other request waits behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from hub.ports.shares import Slots
from rolecall.model.ids import Caller

_Result = TypeVar("_Result")


class FoldingThread:
    """One thread. Workspaces use it in rotation, because jobs are short; each caller has one task folded at a time."""

    def __init__(self, share: Slots) -> None:
        self._share = share
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="folding")
        self._locks: WeakValueDictionary[Caller, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, caller: Caller) -> AsyncIterator[None]:
        """The caller's further tasks wait until this one is folded."""
        lock = self._locks.setdefault(caller, asyncio.Lock())
        async with lock:
            yield

    async def run(self, caller: Caller, job: Callable[..., _Result], *arguments: Any) -> _Result:
        async with self._share.slot(caller.workspace):
            return await asyncio.get_running_loop().run_in_executor(self._thread, job, *arguments)
