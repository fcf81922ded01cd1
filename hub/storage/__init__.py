"""The storage engines behind the ports. An engine's module and its libraries are imported only when they are needed."""

from __future__ import annotations

from pathlib import Path

from hub.ports.clock import Clock
from hub.ports.shares import Share
from hub.ports.state.engine import Engine
from rolecall.errors import StoreError

FILE_NAME = "rolecall.db"


def open_engine(
    url: str, *, data_dir: Path | None = None, clock: Clock, disk_reserve: int = 0, disk: Share | None = None
) -> Engine:
    """The engine for a store address. It is an async context manager: entering opens it.

    `memory:` stores nothing on disk. `sqlite:///var/lib/rolecall.db` is that file, `sqlite:other.db` a file in the data
    directory, `sqlite:` the default file there. `disk_reserve`: bytes to keep free on the disk for small writes. `disk`: bytes
    that are stored; None: any number.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "memory" and not rest:
        from hub.storage.memory.engine import MemoryEngine

        return MemoryEngine(clock, disk=disk)
    if scheme == "sqlite":
        from hub.storage.sqlite.engine import SqliteEngine

        return SqliteEngine(_file(rest, data_dir), clock, disk_reserve=disk_reserve, disk=disk)
    raise StoreError(f"Unknown store {url[:200]!r}. Known: memory:, sqlite:, sqlite:///path/to/file.")


def _file(rest: str, data_dir: Path | None) -> Path:
    name = rest.removeprefix("//") or FILE_NAME
    if name.startswith("/"):
        return Path(name)
    if data_dir is None:
        raise StoreError(
            f"sqlite:{rest[:200]} is a relative path, and there is no data directory. Use sqlite:///absolute/path.db."
        )
    return data_dir / name
