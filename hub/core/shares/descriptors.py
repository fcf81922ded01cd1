"""The file descriptors of the hub's process. Implements ports.shares.Descriptors."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from hub.core.observe import ShareUse

log = logging.getLogger(__name__)

_SHOWN_FOR = 10.0
_LOGGED_EVERY = 60.0


class Descriptors:
    """`limit`: how many the process may have, 0: any number. `used`: about how many it has."""

    def __init__(self, limit: int = 0, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.used = 0
        self._monotonic = monotonic
        self._missing_at = self._logged_at = float("-inf")
        self._count = 0

    @property
    def enough(self) -> bool:
        """None was lacking lately."""
        return self._monotonic() - self._missing_at > _SHOWN_FOR

    @property
    def use(self) -> ShareUse:
        return ShareUse("file descriptors", self.limit, self.used, 0, 0, 0, self._count)

    def none_left(self, where: str) -> None:
        now = self._missing_at = self._monotonic()
        self._count += 1
        if now - self._logged_at >= _LOGGED_EVERY:
            self._logged_at = now
            fields = {"event": "no_descriptors", "for": where, "limit": self.limit, "count": self._count}
            log.error("no file descriptor is left: raise the limit of open files (ulimit -n)", extra=fields)
