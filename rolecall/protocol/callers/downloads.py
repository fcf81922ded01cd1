"""An artifact as one file: what a browser stores of it."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from mimetypes import MimeTypes

from rolecall.errors import InvalidParams
from rolecall.model.content import Artifact, Download, Part, PartKind
from rolecall.model.ids import FileId
from rolecall.protocol.text.jsontext import dump

_TEXT, _LINK = "text/plain", "text/uri-list"
_USUAL = {
    PartKind.TEXT: _TEXT,
    PartKind.URL: _LINK,
    PartKind.DATA: "application/json",
    PartKind.RAW: "application/octet-stream",
}
FileIn = Callable[[str], FileId | None]
_MEDIA_TYPES = MimeTypes()
"""Its own table, without those of the machine."""


def download_of(artifact: Artifact, number: int, part: int | None, file_in: FileIn = lambda url: None) -> Download:
    """`number`: of the artifact. `part`: one of its parts; None: the artifact has one, or parts that are one text or the pieces
    of one file, beside empty texts. `file_in`: the file of the hub that a url names. InvalidParams.
    """
    parts = artifact.parts
    if part is not None:
        if not 1 <= part <= len(parts):
            raise InvalidParams(f"The artifact has {len(parts)} parts, and no part {part}.")
        parts = (parts[part - 1],)
    elif not _is_one(parts := tuple(one for one in parts if one.kind is not PartKind.TEXT or one.value) or parts):
        raise InvalidParams(f"The artifact has {len(parts)} parts of different kinds. Ask for one of them: ?part=1.")
    first = parts[0]
    media = first.media_type or _USUAL[first.kind]
    name = first.filename or artifact.name
    if first.kind is PartKind.URL:
        return Download(f"{name or f'artifact-{number}'}.uri", _LINK, _content(first), file_in(first.value))
    name = name or f"artifact-{number}{_MEDIA_TYPES.guess_extension(media) or ''}"
    if first.kind is PartKind.TEXT:
        media = f"{media.partition(';')[0]}; charset=utf-8"
    return Download(name, media, b"".join([_content(one) for one in parts]))


def _is_one(parts: tuple[Part, ...]) -> bool:
    """What the hub's own client reads as one value too."""
    if len(parts) < 2 or all(part.kind is PartKind.TEXT for part in parts):
        return bool(parts)
    marks = [(part.metadata or {}).get("rolecall") for part in parts]
    pieces = [{"piece": at, "pieces": len(parts)} for at in range(1, len(parts) + 1)]
    return marks == pieces and all(part.kind is PartKind.RAW for part in parts)


def _content(part: Part) -> bytes:
    if part.kind is PartKind.RAW:
        return b64decode(part.value)
    if part.kind is PartKind.DATA:
        return dump(part.value)
    text: str = part.value
    # A link is not followed, neither by the hub nor by a redirect: it is the worker's.
    return f"{''.join(text.split())}\r\n".encode() if part.kind is PartKind.URL else text.encode()
