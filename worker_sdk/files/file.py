"""A file of a message or a result."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from mimetypes import guess_type
from pathlib import Path
from typing import BinaryIO

from rolecall.system.files import possible_name, replace
from worker_sdk.files.content import AtHub, Content, InMemory, OnDisk


class File:
    """A file that is sent with a message, or comes with one; a result that is a file.

    Give its bytes, `File("a.txt", raw=b"…")`, or the `path` of a file on this machine, which is streamed when it is sent. Of
    a file that came, use `raw` if it is small, and otherwise `chunks`, `save` or `open`.
    """

    __slots__ = ("content", "media_type", "name")

    def __init__(
        self,
        name: str = "",
        media_type: str | None = None,
        raw: bytes | None = None,
        *,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        if raw is not None and path is not None:
            raise ValueError("a File takes raw or a path, not both")
        self.content: Content = InMemory(raw or b"") if path is None else OnDisk(Path(path))
        self.name = name or (Path(path).name if path is not None else "")
        self.media_type = media_type or (guess_type(self.name)[0] if path is not None else None)

    @property
    def own_name(self) -> str:
        """The name without folders: it is another's, and must not lead out of the folder that the file is saved in."""
        return _own_name(self.name) or "file"

    @property
    def size(self) -> int | None:
        """In bytes. Of a file at the hub, what its sender says; None: it does not."""
        return self.content.size

    @property
    def path(self) -> Path | None:
        """Where it is on this machine, if it was made of that."""
        return self.content.path if isinstance(self.content, OnDisk) else None

    @property
    def url(self) -> str:
        """Where it is at the hub; empty if it is not there."""
        return self.content.url if isinstance(self.content, AtHub) else ""

    @property
    def raw(self) -> bytes:
        """All bytes. ValueError: it is at the hub, and was too large to be fetched before you asked. RolecallError: the hub did
        not give it.
        """
        return self.content.raw

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The bytes, piece by piece. RolecallError, OSError."""
        async with aclosing(self.content.pieces()) as pieces:
            async for piece in pieces:
                yield piece

    async def read(self) -> bytes:
        """All bytes, whatever memory they take. RolecallError, OSError."""
        return b"".join([piece async for piece in self.chunks()])

    async def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a path, or into a folder under its own name; the path is there once it is complete. Returns the path.
        RolecallError, OSError.
        """
        target = Path(path)
        if await asyncio.to_thread(target.is_dir):
            target = target / self.own_name
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        try:
            with await asyncio.to_thread(part.open, "wb") as out:
                async for piece in self.chunks():
                    await asyncio.to_thread(out.write, piece)
            await asyncio.to_thread(replace, part, target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return target

    def open(self) -> BinaryIO:
        """To be read in a plain function, which runs in a thread of its own. RuntimeError: it would block the event loop."""
        return self.content.open()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and self._members == other._members

    def __hash__(self) -> int:
        return hash(self._members)

    def __repr__(self) -> str:
        size = "of unknown size" if self.size is None else f"{self.size} bytes"
        return f"File({self.name!r}, {self.media_type!r}, {size})"

    @property
    def _members(self) -> tuple[object, ...]:
        where = self.url or self.path
        return self.name, self.media_type, where, None if where else self.raw


def _own_name(name: str) -> str:
    last = re.split(r"[/\\]", name)[-1]
    return possible_name("".join(character for character in last if character.isprintable()).strip(" ."))
