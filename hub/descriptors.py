"""The limit of the process on file descriptors: what fits below it, and whether it is reached."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sys
from typing import NamedTuple

from hub.core.shares.descriptors import Descriptors

if sys.platform != "win32":
    import resource

log = logging.getLogger(__name__)

_RESERVE = 512
"""For the store, its logs and token file, webhooks, and probes."""
_LOOK_EVERY = 1.0
_OPEN_MAX = 10_240
"""Of macOS, which may refuse more, also where it says that there is no limit."""


class Connections(NamedTuple):
    """How many may be open to the hub, and to workers."""

    callers: int
    workers: int

    @property
    def descriptors(self) -> int:
        return self.callers + refused_at_once(self.callers) + self.workers


def refused_at_once(limit: int) -> int:
    """Connections above the limit that get an answer before they are closed."""
    return max(10, limit // 20)


def raise_limit() -> int:
    """Let the process have as many descriptors as the system allows it. Return how many; 0: any number, as on Windows."""
    if sys.platform != "win32":
        current, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
        if current != highest:
            current = _raised(current, highest)
        return 0 if current == resource.RLIM_INFINITY else current
    return 0


def _raised(current: int, highest: int) -> int:
    if sys.platform != "win32":
        for wanted in (highest, max(current, _OPEN_MAX)):
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, highest))
            except (OSError, ValueError):
                continue
            return wanted
        log.info("the limit of open files stays", extra={"event": "descriptors_kept", "limit": current})
    return current


def fit(wanted: Connections, limit: int) -> Connections:
    """What of these fits below the limit, beside the reserve. What needs less than half is not lowered: a stream needs one of
    both. If it is less than what is wanted, it is logged.
    """
    if not limit:
        return wanted
    room = limit - min(_RESERVE, limit // 4)
    if wanted.descriptors <= room:
        return wanted
    half = room // 2
    most_of_callers = max(half, room - wanted.workers)
    callers = max(1, min(wanted.callers, most_of_callers - refused_at_once(most_of_callers)))
    lower = Connections(callers, max(1, min(wanted.workers, room - callers - refused_at_once(callers))))
    log.info(
        "the limit of open files is too low for max_connections and max_worker_connections: both are lowered. Raise it "
        "(ulimit -n, LimitNOFILE), or lower the settings",
        extra={"event": "few_descriptors", "limit": limit, "connections": lower.callers, "to_workers": lower.workers},
    )
    return lower


def out_of_descriptors(error: BaseException | None) -> bool:
    """Whether the process, or the whole system, had no descriptor for something."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


async def watch(descriptors: Descriptors) -> None:
    """Run forever: look whether there is a descriptor. libuv closes connections that it has none for, and tells nobody."""
    while True:
        try:
            lowest = os.open(os.devnull, os.O_RDONLY)
        except OSError as error:
            if out_of_descriptors(error):
                descriptors.none_left("anything")
        else:
            os.close(lowest)
            # On Windows sockets have numbers of their own, and nothing tells how many there are.
            descriptors.used = lowest if sys.platform != "win32" else 0
        await asyncio.sleep(_LOOK_EVERY)
