"""Every test here runs on every engine. What only a durable engine keeps is tested where `on_disk` is true."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hub.core.shares.share import WorkspaceShare
from hub.ports.state.engine import Engine
from hub.storage import open_engine
from hub.storage.memory.engine import MemoryEngine
from rolecall.model.ids import FileId
from tests.helpers.clock import ManualClock
from tests.helpers.databases import empty_database


@dataclass
class Store:
    """The URL of an engine, and the open engine. `disk`: what it has stored, counted anew by each engine that is opened."""

    url: str
    on_disk: bool
    clock: ManualClock
    limits: tuple[int, int] = (10**9, 10**9)
    disk: WorkspaceShare = field(init=False)
    _open: list[Engine] = field(default_factory=list)

    async def open(self) -> Engine:
        self.disk = WorkspaceShare("bytes on disk", "max_disk", *self.limits)
        engine = await open_engine(self.url, clock=self.clock, disk=self.disk).__aenter__()
        self._open.append(engine)
        return engine

    @property
    def folder(self) -> Path:
        """Of the bytes of its files, on disk."""
        return Path(self.url.removeprefix("sqlite://") + "-files")

    def bytes_on_disk(self, engine: Engine) -> list[FileId]:
        """The files whose bytes are there."""
        folder = self.folder
        if not self.on_disk:
            assert isinstance(engine, MemoryEngine)
            folder = engine.files.folder.path or folder
        return sorted(FileId(path.name) for path in folder.glob("*/*"))

    async def close(self) -> None:
        while self._open:
            await self._open.pop().__aexit__(None, None, None)

    async def open_again(self, engine: Engine) -> Engine:
        """The same state, from the disk if the engine has one."""
        return await self.reopen() if self.on_disk else engine

    async def reopen(self) -> Engine:
        if not self.on_disk:
            pytest.skip("keeps nothing")
        await self.close()
        return await self.open()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    on_disk = request.param == "sqlite"
    store = Store(f"sqlite://{empty_database(tmp_path / 'data' / 'hub.db')}" if on_disk else "memory:", on_disk, clock)
    yield store
    await store.close()


@pytest.fixture
async def engine(store: Store) -> Engine:
    return await store.open()
