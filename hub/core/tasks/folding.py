"""Folds long logs page by page, in a thread of its own: no other request waits behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from rolecall.model.ids import Caller

_Result = TypeVar("_Result")


class FoldingThread:
    """One thread for all callers. Jobs are short, so that the tasks that are being folded take turns; each caller has one."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="folding")
        self._locks: WeakValueDictionary[Caller, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, caller: Caller) -> AsyncIterator[None]:
        """The caller's further tasks wait until this one is folded."""
        lock = self._locks.setdefault(caller, asyncio.Lock())
        async with lock:
            yield

    async def run(self, job: Callable[..., _Result], *arguments: Any) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, job, *arguments)
