from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hub.storage.sqlite.engine import SqliteEngine
from tests.helpers.clock import MovableClock


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "data" / "hub.db"


@pytest.fixture
async def engine(database: Path, clock: MovableClock) -> AsyncIterator[SqliteEngine]:
    async with SqliteEngine(database, clock) as engine:
        yield engine
