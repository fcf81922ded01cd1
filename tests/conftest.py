"""For all tests: bytecode is kept, whatever the environment says. Without it each process of a test compiles the tree anew."""

from __future__ import annotations

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
