"""Files by reference in documents: file parts with the url of a file of this hub (docs/reference/files-extension.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rolecall.model.a2a import JsonObject
from rolecall.model.card import FILES_EXTENSION, Extension
from rolecall.model.content import NamedFile
from rolecall.model.ids import FileId, is_file_id
from rolecall.protocol.dialects import DIALECTS


class FileUrls:
    """The urls of this hub's files. `start`: what stands before an id; empty: the hub has none."""

    def __init__(self, start: str = "") -> None:
        self._start = start
        self._mark = start.encode()

    def may_be_in(self, body: bytes) -> bool:
        """Whether a document may name a file, as quickly as a text is found. What the hub writes has no escaped slashes."""
        return bool(self._mark) and self._mark in body

    def find(self, document: JsonObject, dialect: str, where: str = "") -> list[NamedFile]:
        """The files that a message, a task, an update, or the parameters of a call name: not those in data or metadata."""
        shape = DIALECTS[dialect].shape
        found: list[NamedFile] = []
        for path, holder in _with_parts(document, where):
            for at, part in enumerate(holder["parts"]):
                url = shape.file_url(part) if isinstance(part, dict) else None
                if url is not None and (file := self.id_in(url)) is not None:
                    found.append(NamedFile(f"{path}parts[{at}]", file))
        return found

    def fill(self, document: JsonObject, dialect: str, contents: Mapping[FileId, str]) -> None:
        """Replace the urls of these files by their bytes, as base64. Messages and artifacts get new lists of parts."""
        for _, holder in _with_parts(document, ""):
            holder["parts"] = [self._filled(part, dialect, contents) for part in holder["parts"]]

    def _filled(self, part: Any, dialect: str, contents: Mapping[FileId, str]) -> Any:
        shape = DIALECTS[dialect].shape
        url = shape.file_url(part) if isinstance(part, dict) else None
        content = contents.get(self.id_in(url) or FileId("")) if url is not None else None
        return part if content is None else _without_own(shape.with_bytes(part, content))

    def id_in(self, url: str) -> FileId | None:
        name = url.removeprefix(self._start)
        return FileId(name) if self._start and name != url and is_file_id(name) else None


def files_extension(url: str, max_size: int) -> Extension:
    """As a hub declares it. `url`: what the urls of its files begin with."""
    return Extension(
        FILES_EXTENSION,
        "Large files are sent as URLs of the hub, which stores them.",
        params={"url": url, "max_size": max_size},
    )


def _with_parts(document: JsonObject, where: str) -> Iterator[tuple[str, JsonObject]]:
    """The messages and artifacts of a document, with the paths that lead to their members."""
    if isinstance(document.get("parts"), list):
        yield where, document
    status = document.get("status")
    named = [("message", document.get("message")), ("artifact", document.get("artifact"))]
    if isinstance(status, dict):
        named.append(("status.message", status.get("message")))
    for name in ("history", "artifacts"):
        held = document.get(name)
        for at, one in enumerate(held if isinstance(held, list) else ()):
            named.append((f"{name}[{at}]", one))
            if name == "history" and isinstance(one, dict):  # in 0.1 it has the statuses
                named.append((f"{name}[{at}].message", one.get("message")))
    for path, one in named:
        if isinstance(one, dict) and isinstance(one.get("parts"), list):
            yield f"{where}{path}.", one


def _without_own(part: JsonObject) -> JsonObject:
    """It is no file by reference any more."""
    metadata = part.get("metadata")
    if not isinstance(metadata, dict) or FILES_EXTENSION not in metadata:
        return part
    others = {name: value for name, value in metadata.items() if name != FILES_EXTENSION}
    return {name: value for name, value in part.items() if name != "metadata"} | ({"metadata": others} if others else {})
