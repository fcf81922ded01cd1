"""Files as parts of messages and results: with their bytes, or by reference."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rolecall.model.a2a import JsonObject
from rolecall.model.card import FILES_EXTENSION
from worker_sdk.errors import InvalidRequest
from worker_sdk.files.content import AtHub, RemoteFiles
from worker_sdk.files.file import File

FETCHED = 16 * 1024 * 1024
"""Bytes of files at the hub that a handler or a caller finds in memory: as many as one event could hold. Others are not."""
INLINE_TOGETHER = 4 * 1024 * 1024
"""Bytes of the files in one message that are sent with it, however small they are."""
NO_FILES: Mapping[str, File] = {}


class Files(RemoteFiles, Protocol):
    """The files by reference that somebody may send and read. See HubFiles."""

    @property
    def stores(self) -> bool:
        """Whether it takes large files, so that they can be sent by reference."""

    def find(self, part: JsonObject) -> File | None:
        """The file by reference that a file part names. None: its url is no file of the hub."""

    async def part(self, file: File, *, room: int = INLINE_TOGETHER) -> JsonObject:
        """The part that sends a file: with its bytes if it is small, and these are no more than `room`; else by reference.
        RolecallError, OSError.
        """


# --- sending


async def part_of(file: File, files: Files | None, *, room: int = INLINE_TOGETHER) -> JsonObject:
    """See Files. Without them a file is sent with its bytes."""
    return await inline(file) if files is None else await files.part(file, room=room)


async def inline(file: File) -> JsonObject:
    """With its bytes, as every A2A agent reads it."""
    return _part(file, {"bytes": b64encode(await file.read()).decode()})


def by_reference(file: File, url: str, own: JsonObject) -> JsonObject:
    """`own`: what the files extension says of it."""
    return _part(file, {"uri": url}) | {"metadata": {FILES_EXTENSION: own}}


def _part(file: File, content: JsonObject) -> JsonObject:
    named = {"name": file.name} if file.name else {}
    return {"kind": "file", "file": content | named | ({"mimeType": file.media_type} if file.media_type else {})}


# --- reading


def file_at(url: str, files: RemoteFiles, part: JsonObject) -> File:
    """The file by reference that this part names."""
    about, own = part["file"], (part.get("metadata") or {}).get(FILES_EXTENSION)
    size = own.get("size") if isinstance(own, dict) else None
    file = File(str(about.get("name") or ""), about.get("mimeType"))
    file.content = AtHub(url, files, size if isinstance(size, int) else None)
    return file


def read_file(part: JsonObject, where: str, found: Mapping[str, File]) -> File:
    """The file of a file part: one of those that were `found`, or one with its bytes. ValueError."""
    file = part.get("file") or {}
    known = found.get(file.get("uri") or "")
    if known is not None:
        return known
    if "bytes" not in file:
        raise ValueError(f"{where} is a file with a url that is no file of this hub: send its bytes, or upload it to the hub")
    try:
        raw = b64decode(file["bytes"], validate=True)
    except ValueError as error:
        raise ValueError(f"{where}.file.bytes is not base64") from error
    return File(str(file.get("name") or ""), file.get("mimeType"), raw)


def files_in(parts: Sequence[JsonObject], files: Files | None) -> dict[str, File]:
    """Those that the parts name by reference, by their urls."""
    if files is None:
        return {}
    found = (files.find(part) for part in parts if part.get("kind") == "file")
    return {file.url: file for file in found if file is not None}


def files_of(parts: Sequence[JsonObject], found: Mapping[str, File]) -> list[File]:
    """Those that were `found`, and those that are in their parts. ValueError: not base64."""
    own = [(f"parts[{at}]", part) for at, part in enumerate(parts) if isinstance(part.get("file"), dict)]
    return [read_file(part, where, found) for where, part in own if "bytes" in part["file"] or part["file"].get("uri") in found]


async def fetch(files: Iterable[File], *, all_there: bool = True) -> None:
    """Take the files that are at the hub into memory, one after the other, as long as they fit. RolecallError; not `all_there`:
    one that the hub refuses is passed over, and says so when its bytes are asked for.
    """
    room = FETCHED
    for file in files:
        content = file.content
        if not isinstance(content, AtHub):
            continue
        try:
            room -= await content.fetch(room)
        except InvalidRequest as refused:
            if all_there:
                raise
            content.refuse(refused)
