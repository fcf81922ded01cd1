"""For all tests: what would cost CPU in every process or with every request."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from pathlib import Path

import certifi

# Bytecode is kept, whatever the environment says: without it each process of a test compiles the tree anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# httpx reads the certificates of all authorities for each client, and for each request without one, which takes 16 ms. Tests
# talk to this machine, whose certificates none of them has signed: one is enough.
_END = "-----END CERTIFICATE-----\n"
_one_authority = tempfile.NamedTemporaryFile("w", suffix=".pem")  # noqa: SIM115  as long as this process runs
_one_authority.write(Path(certifi.where()).read_text().partition(_END)[0] + _END)
_one_authority.flush()
certifi.where = lambda: _one_authority.name


def pytest_collection_finish() -> None:
    """The twelve thousand tests are no garbage: the collector need not look at them again and again."""
    gc.freeze()
