"""Finds what only the garbage collector would free. The hub collects rarely, so that such objects would stay for long."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_cycles_of(*kinds: type) -> Iterator[None]:
    """Fails if the block leaves objects of these classes that nobody can reach, and that still exist."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [found for found in gc.garbage if isinstance(found, kinds)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not left, f"{len(left)} objects, such as {left[0]!r}"
