"""Puts the bytes of files into what goes to those who do not read files by reference."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence

from hub.core.shares.share import SMALL
from hub.core.shares.table import Shares
from hub.ports.codec import Codec
from hub.ports.state.files import Files
from rolecall.errors import FileLost, FileNotFound
from rolecall.model.a2a import Event
from rolecall.model.ids import FileId, TaskId
from rolecall.model.task import StoredFile
from rolecall.model.value import replace

_PIECE = 3 * 64 * 1024
"""Bytes that are read at once. As base64 they need no padding."""


class InlineFiles:
    """`limit`: bytes of a document with the files that are put in. What does not fit, and what its task does not have, stays a
    url. 0: everything does.
    """

    def __init__(self, files: Files, codec: Codec, shares: Shares, limit: int) -> None:
        self._files = files
        self._codec = codec
        self._unsent = shares.unsent
        self._pieces = shares.file_pieces
        self.messages = shares.messages
        """Counts what is put into messages to workers."""
        self._limit = limit
        self._looked_at = b""
        """The small body that was searched last."""
        self._found = False

    def may_be_in(self, body: bytes) -> bool:
        """Whether there may be something to put in. The readers of an event ask one after the other: it is searched once."""
        if not self._limit:
            return False
        if len(body) >= SMALL:  # it is not kept for this
            return self._codec.may_name_files(body)
        if body is not self._looked_at:
            self._looked_at, self._found = body, self._codec.may_name_files(body)
        return self._found

    async def event(self, workspace: str, task: TaskId, event: Event) -> Event:
        """AnswerNotSent."""
        if not self.may_be_in(event.body):
            return event
        return replace(event, body=await self.document(workspace, task, event.body, event.dialect))

    async def document(self, workspace: str, task: TaskId, body: bytes, dialect: str, *, beside: int = 0) -> bytes:
        """Messages and artifacts of a task; `beside`: bytes that go with it. AnswerNotSent: there is no room for so much at the
        moment.
        """
        if not self.may_be_in(body):
            return body
        large = len(body) > SMALL
        find = self._codec.files_in
        named = await asyncio.to_thread(find, body, dialect) if large else find(body, dialect)
        chosen = await self.choose(task, named, len(body) + beside)
        if not chosen:
            return body
        with self._unsent.hold(workspace, len(body) + self.memory(chosen)):
            contents = await self.read(workspace, chosen)
            return await asyncio.to_thread(self._codec.with_bytes, body, dialect, contents)

    async def choose(self, task: TaskId, named: Sequence[FileId], size: int) -> list[StoredFile]:
        """Of the files that a document of this size names, those that fit, and that the task has."""
        room, chosen = self._limit - size, list[StoredFile]()
        for file, count in Counter(named).items() if self._limit else ():
            if room > 0 and (stored := await self.find(task, file)) is not None:
                needed = count * _as_base64(stored.offset)
                if needed <= room:
                    room -= needed
                    chosen += [stored] * count
        return chosen

    def memory(self, chosen: Sequence[StoredFile]) -> int:
        """Bytes that these files take in a document."""
        return sum([_as_base64(file.offset) for file in chosen])

    async def read(self, workspace: str, chosen: Sequence[StoredFile]) -> dict[FileId, str]:
        """Their bytes, as base64; without those that are missing."""
        contents = {}
        for file in {file.id: file for file in chosen}.values():
            try:
                contents[file.id] = await self._read(workspace, file)
            except (FileLost, FileNotFound):
                continue  # the url leads to the same error
        return contents

    async def find(self, task: TaskId, file: FileId) -> StoredFile | None:
        """None: the task does not have it, or its bytes are missing."""
        try:
            stored = await self._files.get(file) if await self._files.has(task, file) else None
        except FileNotFound:
            return None
        return stored if stored is not None and stored.complete and not stored.lost else None

    async def _read(self, workspace: str, file: StoredFile) -> str:
        pieces = []
        for at in range(0, file.offset, _PIECE):
            async with self._pieces.slot(workspace):
                piece = await self._files.read(file.id, at, min(_PIECE, file.offset - at))
            pieces.append(b64encode(piece).decode())
        return "".join(pieces)


def _as_base64(size: int) -> int:
    return -(-size // 3) * 4
