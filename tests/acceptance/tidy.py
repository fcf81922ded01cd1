"""A hub that reports objects that reference counts did not free: `python -m tests.acceptance.tidy`.

At SIGUSR1 it begins to keep what only the collector finds. At SIGUSR2 it writes to the file GARBAGE how many of these objects
there are of each of the hub's own classes.
"""

from __future__ import annotations

import collections
import gc
import json
import os
import signal
import sys
from pathlib import Path

from hub.run import run
from hub.settings.model import load

COMMAND = (sys.executable, "-m", "tests.acceptance.tidy")


def begin(*_: object) -> None:
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)


def report(*_: object) -> None:
    gc.collect()
    types = [f"{type(found).__module__}.{type(found).__qualname__}" for found in gc.garbage]
    kept = collections.Counter(name for name in types if name.startswith("hub."))
    path = Path(os.environ["GARBAGE"])
    path.with_suffix(".new").write_text(json.dumps(kept))
    path.with_suffix(".new").rename(path)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, report)
    run(load().settings)
