"""A hub that deletes expired tasks every half second, so that tests need not wait: `python -m …syncs.brisk`."""

from __future__ import annotations

import sys

import hub.app
from hub.run import run
from hub.settings.model import load

EVERY = 0.5
ARGV = (sys.executable, "-m", "tests.acceptance.syncs.brisk")

if __name__ == "__main__":
    hub.app._FORGET_EVERY = EVERY
    run(load().settings)
