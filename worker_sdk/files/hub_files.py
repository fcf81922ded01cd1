"""Files at a hub: sent and read in pieces, and gone on with where a cut has ended that."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

from rolecall.model.a2a import JsonObject
from rolecall.protocol.text.jsontext import parse
from worker_sdk.errors import HubBusy, HubUnreachable, InvalidRequest, RolecallError, StreamLost
from worker_sdk.files.content import AtHub
from worker_sdk.files.file import File
from worker_sdk.files.parts import INLINE_TOGETHER, Files, by_reference, file_at, inline

if TYPE_CHECKING:
    from worker_sdk.calling.http import HubLink

FILE_THRESHOLD = 256 * 1024
"""Bytes. A larger file is sent by reference."""
FILES_PATH = "/registry/files"
_OTHER_FORM = "application/octet-stream"
_ID = re.compile("[0-9a-f]{32}")
_LOST = (HubUnreachable, StreamLost, HubBusy)
_CUT_SHORT = ("CONFLICT", "BODY_TOO_SLOW")
"""The hub has another number of bytes than was believed, or has waited too long for the next: both go on where it is."""
_NO_STORE = ("FILES_OFF", "NOT_FOUND")
"""The hub stores no files, or is older than files are: they are sent as before."""
_PARTIAL = 206


class HubStore(NamedTuple):
    """What a hub says of its files: the url that theirs begin with, and how large one may be."""

    url: str
    max_size: int


def read_store(document: Any) -> HubStore | None:
    """From the hub's answer to an enrolment."""
    url, max_size = (document.get("url"), document.get("max_size")) if isinstance(document, dict) else (None, None)
    return HubStore(url, max_size) if isinstance(url, str) and url and isinstance(max_size, int) else None


class HubFiles(Files):
    """The files of a hub, for one who reaches it by `link`. `store`: what it says of them; None: it was not asked.

    `threshold`: bytes above which files are sent by reference; None: none is. `give_up_after`: seconds without progress.
    `waits`: for a hub that is away before an upload too, as the worker of a task should.
    """

    def __init__(
        self,
        link: HubLink,
        *,
        store: HubStore | None = None,
        threshold: int | None = FILE_THRESHOLD,
        waits: bool = False,
        give_up_after: float = 60.0,
        backoff: tuple[float, float] = (0.1, 5.0),
    ) -> None:
        self._waits = waits
        self._link = link
        self._store = store
        self._threshold = threshold
        self._give_up_after = give_up_after
        self._backoff = backoff

    @property
    def stores(self) -> bool:
        return self._threshold is not None

    # --- parts

    def find(self, part: JsonObject) -> File | None:
        """The file by reference that a file part names. It is read from the hub that `link` leads to, by its id: a token never
        goes where a url leads.
        """
        file = part.get("file")
        url = file.get("uri") if isinstance(file, dict) else None
        return file_at(url, self, part) if isinstance(url, str) and self._id_in(url) is not None else None

    async def part(self, file: File, *, room: int = INLINE_TOGETHER) -> JsonObject:
        """The part that sends a file: with its bytes, if it is small and these are no more than `room`; else by reference.
        RolecallError, OSError.
        """
        content = file.content
        if isinstance(content, AtHub) and isinstance(content.files, HubFiles) and content.files._link.hub == self._link.hub:
            return by_reference(file, content.url, {} if file.size is None else {"size": file.size})
        size = await content.measure()
        if self._threshold is None or size <= min(self._threshold, room):
            return await inline(file)
        try:
            stored = await self.upload(file, size)
        except RolecallError as refused:
            if refused.reason not in _NO_STORE:
                raise
            return await inline(file)
        return by_reference(file, stored["url"], {name: stored[name] for name in ("size", "sha256") if stored.get(name)})

    # --- sending

    async def upload(self, file: File, size: int) -> JsonObject:
        """What the hub says of the file, once it has all of it. RolecallError, OSError."""
        state = await self._create(file, size)
        path, attempts = f"{FILES_PATH}/{state['id']}", _Attempts(self._give_up_after, self._backoff)
        while not state["complete"]:
            offset = int(state["offset"])
            try:
                state = await self._continue(path, file, offset, size)
            except RolecallError as cut:
                if not isinstance(cut, _LOST) and cut.reason not in _CUT_SHORT:
                    raise
                await attempts.pause(offset, cut)
                try:
                    state = await self._state(path, state)
                except InvalidRequest:
                    raise cut from None  # it was given up with what it had, and that is why
        return state

    async def _create(self, file: File, size: int) -> JsonObject:
        """Without bytes: so its id is known before any of them can be lost."""
        headers, attempts = {"upload-length": str(size)}, _Attempts(self._give_up_after, self._backoff)
        headers["content-type"] = _in_header(file.media_type or _OTHER_FORM)
        while True:
            try:
                return await self._ask("POST", FILES_PATH, headers=headers, query={"name": file.name})
            except _LOST as cut:
                if not self._waits:
                    raise
                await attempts.pause(0, cut)

    async def _continue(self, path: str, file: File, offset: int, size: int) -> JsonObject:
        headers = {"upload-offset": str(offset), "content-type": _OTHER_FORM, "content-length": str(size - offset)}
        async with aclosing(_exactly(file, offset, size)) as pieces:
            return await self._ask("PATCH", path, headers=headers, content=pieces)

    async def _state(self, path: str, known: JsonObject) -> JsonObject:
        """How much of an upload the hub has; what was known, as long as it cannot be asked. RolecallError."""
        try:
            async with self._link.send("HEAD", path) as response:
                headers = response.headers
        except _LOST:
            return known
        return {**known, "offset": int(headers["upload-offset"]), "complete": headers["upload-complete"] == "?1"}

    async def _ask(self, method: str, path: str, **sent: Any) -> JsonObject:
        async with self._link.send(method, path, **sent) as response:
            document: JsonObject = parse(await response.aread())
            return document

    # --- reading

    async def size_of(self, url: str) -> int:
        async with self._link.send("HEAD", self._path_of(url)) as response:
            return int(response.headers["content-length"])

    async def chunks(self, url: str, offset: int = 0) -> AsyncGenerator[bytes, None]:
        path, at, version, end = self._path_of(url), offset, "", None
        attempts = _Attempts(self._give_up_after, self._backoff)
        while end is None or at < end:
            headers = ({"range": f"bytes={at}-"} if at else {}) | ({"if-range": version} if version else {})
            try:
                async with self._link.send("GET", path, headers=headers) as response:
                    if at and response.status_code != _PARTIAL:
                        raise RolecallError("The hub no longer has the file that was begun.", reason="FILE_LOST")
                    version, end = response.headers["etag"], at + int(response.headers["content-length"])
                    async for chunk in response.aiter_raw():
                        at += len(chunk)
                        yield chunk
            except _LOST as cut:
                await attempts.pause(at, cut)

    def _path_of(self, url: str) -> str:
        return f"{FILES_PATH}/{self._id_in(url)}"

    def _id_in(self, url: str) -> str | None:
        start, _, name = url.rpartition("/")
        known = start == self._store.url if self._store is not None else start.endswith(FILES_PATH)
        return name if known and _ID.fullmatch(name) else None


class _Attempts:
    """Pauses that grow, until nothing has come for too long."""

    def __init__(self, give_up_after: float, backoff: tuple[float, float]) -> None:
        self._give_up_after = give_up_after
        self._low, self._high = backoff
        self._pause = self._low
        self._at = -1
        self._lost_since = 0.0

    async def pause(self, at: int, cut: RolecallError) -> None:
        """`at`: how far it has come. Raises `cut` if it has come no further for so long."""
        now = asyncio.get_running_loop().time()
        if at > self._at:
            self._at, self._lost_since, self._pause = at, now, self._low
        elif now - self._lost_since > self._give_up_after:
            raise cut
        await asyncio.sleep(random.uniform(self._low / 2, self._pause))
        self._pause = min(self._high, self._pause * 2)


def _in_header(media_type: str) -> str:
    """It may be what a stranger wrote."""
    return media_type if media_type.isascii() and media_type.isprintable() and len(media_type) < 200 else _OTHER_FORM


async def _exactly(file: File, offset: int, size: int) -> AsyncGenerator[bytes, None]:
    """So many bytes as were announced. RolecallError: there are fewer."""
    at = offset
    async with aclosing(file.content.pieces(offset)) as pieces:
        async for piece in pieces:
            yield piece[: size - at]
            at += len(piece)
            if at >= size:
                return
    if at < size:
        raise RolecallError(f"{file} became shorter while it was sent.")
