"""The bytes of a file: in memory, on this machine's disk, or at a hub."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, BinaryIO, Protocol

PIECE = 1024 * 1024
"""Bytes that are read or written at a time."""


class Content(Protocol):
    @property
    def size(self) -> int | None:
        """None: it is not known without a question to the hub."""

    @property
    def raw(self) -> bytes:
        """All bytes."""

    def pieces(self, offset: int = 0) -> AsyncGenerator[bytes, None]:
        """RolecallError, OSError."""

    async def measure(self) -> int:
        """The size, whatever it takes. RolecallError, OSError."""

    def open(self) -> BinaryIO:
        """In a thread."""


class RemoteFiles(Protocol):
    """Where bytes by reference are. See HubFiles."""

    def chunks(self, url: str, offset: int = 0) -> AsyncGenerator[bytes, None]:
        """From `offset` to the end, also over cuts. RolecallError."""

    async def size_of(self, url: str) -> int:
        """RolecallError."""


class InMemory(Content):
    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    @property
    def size(self) -> int:
        return len(self._raw)

    @property
    def raw(self) -> bytes:
        return self._raw

    async def pieces(self, offset: int = 0) -> AsyncGenerator[bytes, None]:
        for at in range(offset, len(self._raw), PIECE):
            yield self._raw[at : at + PIECE]

    async def measure(self) -> int:
        return self.size

    def open(self) -> BinaryIO:
        return io.BytesIO(self._raw)


class OnDisk(Content):
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    @property
    def raw(self) -> bytes:
        return self.path.read_bytes()

    async def pieces(self, offset: int = 0) -> AsyncGenerator[bytes, None]:
        with await asyncio.to_thread(self.path.open, "rb") as stored:
            await asyncio.to_thread(stored.seek, offset)
            while piece := await asyncio.to_thread(stored.read, PIECE):
                yield piece

    async def measure(self) -> int:
        return await asyncio.to_thread(lambda: self.size)

    def open(self) -> BinaryIO:
        return self.path.open("rb")


class AtHub(Content):
    """A file by reference, which may be fetched. `size`: what its sender says. Made on the event loop."""

    def __init__(self, url: str, files: RemoteFiles, size: int | None) -> None:
        self.url = url
        self.files = files
        self._size = size
        self._loop = asyncio.get_running_loop()
        self._fetched: bytes | None = None
        self._refusal: Exception | None = None

    @property
    def size(self) -> int | None:
        return self._size if self._fetched is None else len(self._fetched)

    @property
    def is_fetched(self) -> bool:
        return self._fetched is not None

    @property
    def raw(self) -> bytes:
        """ValueError: it has not been fetched; RolecallError: it could not be."""
        if self._fetched is not None:
            return self._fetched
        if self._refusal is not None:
            raise self._refusal
        raise ValueError(
            "The file is at the hub, and was too large to be read before you asked. Use `async for chunk in file.chunks()`, "
            "`await file.save(path)` or `await file.read()`; in a plain function `file.open()`."
        )

    async def pieces(self, offset: int = 0) -> AsyncGenerator[bytes, None]:
        source = self.files.chunks(self.url, offset) if self._fetched is None else InMemory(self._fetched).pieces(offset)
        async with aclosing(source) as pieces:
            async for piece in pieces:
                yield piece

    async def measure(self) -> int:
        return len(self._fetched) if self._fetched is not None else await self.files.size_of(self.url)

    def open(self) -> BinaryIO:
        """RuntimeError: it would block the event loop."""
        if self._fetched is not None:
            return io.BytesIO(self._fetched)
        if asyncio._get_running_loop() is self._loop:
            raise RuntimeError("file.open() waits for the hub: use `async for chunk in file.chunks()` in an async function.")
        return io.BufferedReader(_BlockingReader(self.pieces(), self._loop), PIECE)

    async def fetch(self, limit: int) -> int:
        """Take it into memory, if it is no larger than `limit`. Returns how many bytes it now has there. RolecallError."""
        if self._fetched is not None or (self._size or 0) > limit:
            return 0
        content = bytearray()
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                content += piece
                if len(content) > limit:  # its sender was wrong about its size
                    return 0
        self._fetched = bytes(content)
        return len(content)

    def refuse(self, why: Exception) -> None:
        """It cannot be fetched."""
        self._refusal = why


class _BlockingReader(io.RawIOBase):
    """Reads on a thread what comes on the loop."""

    def __init__(self, chunks: AsyncIterator[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._chunks = chunks
        self._loop = loop
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = asyncio.run_coroutine_threadsafe(self._next(), self._loop).result()
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count

    async def _next(self) -> bytes:
        return await anext(self._chunks, b"")
