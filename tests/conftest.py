"""For all tests: what would cost CPU in every process or with every request, and which tests stay together."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from pathlib import Path

import certifi
import pytest
from xdist.scheduler import LoadFileScheduling

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

TOGETHER = ("tests/interop/", "tests/seeds/")
"""The tests of each share processes that take long to start."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These take longest, so they are first."""
    items.sort(key=lambda item: not item.nodeid.startswith(TOGETHER))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling:
    return ByFile(config, log)


class ByFile(LoadFileScheduling):
    """A runner gets a file at a time, or such a folder."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), super()._split_scope(nodeid))


def pytest_collection_finish() -> None:
    """The twelve thousand tests are no garbage: the collector need not look at them again and again."""
    gc.freeze()
