from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hub.storage.sqlite.engine import SqliteEngine
from tests.helpers.clock import ManualClock
from tests.helpers.databases import empty_database


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "data" / "hub.db"


@pytest.fixture
async def engine(database: Path, clock: ManualClock) -> AsyncIterator[SqliteEngine]:
    async with SqliteEngine(empty_database(database), clock) as engine:
        yield engine
