"""State behind the ports. An engine's module is imported when it is asked for, so that its libraries are too."""

from __future__ import annotations

from pathlib import Path

from hub.ports.clock import Clock
from hub.ports.engine import Engine
from rolecall.errors import StoreError

FILE_NAME = "rolecall.db"


def open_engine(url: str, *, data_dir: Path | None = None, clock: Clock) -> Engine:
    """The engine that a store address names; enter it to open it.

    `memory:` keeps nothing. `sqlite:///var/lib/rolecall.db` is that file, `sqlite:other.db` a file in the data
    directory, `sqlite:` the usual file there.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "memory" and not rest:
        from hub.storage.memory.engine import MemoryEngine

        return MemoryEngine(clock)
    if scheme == "sqlite":
        from hub.storage.sqlite.engine import SqliteEngine

        return SqliteEngine(_file(rest, data_dir), clock)
    raise StoreError(f"Unknown store {url[:200]!r}. Known: memory:, sqlite:, sqlite:///path/to/file.")


def _file(rest: str, data_dir: Path | None) -> Path:
    name = rest.removeprefix("//") or FILE_NAME
    if name.startswith("/"):
        return Path(name)
    if data_dir is None:
        raise StoreError(f"sqlite:{rest[:200]} names no absolute path, and there is no data directory to put it in.")
    return data_dir / name
