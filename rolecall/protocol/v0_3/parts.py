"""Parts in 0.3, and in 0.1, which has `type` where 0.3 has `kind`.

Both have no member for the filename and media type of a text or data part, and none for data that is not an object. Such
values are packed into the part's metadata when it is written, and unpacked when it is read, so that a round trip loses nothing.
All other metadata is the sender's, even if it looks like ours: writing and reading are exact inverses of each other.
"""

from __future__ import annotations

from typing import Any

from rolecall.model.a2a import JsonObject
from rolecall.model.content import Part, PartKind
from rolecall.protocol.text import members
from rolecall.protocol.untranslatable import Untranslatable

_OWN = "rolecall"  # the member of the metadata that is ours
_WRAPPED = "data_part_compat"  # the mark that the official Python SDK sets and understands
_KEPT = {"mediaType": str, "filename": str, "metadata": dict}
KINDS = ("text", "file", "data")


def read_parts(holder: JsonObject, where: str) -> tuple[Part, ...]:
    parts = holder.get("parts")
    if not isinstance(parts, list):
        raise Untranslatable(f'"{where}.parts" must be a list.')
    return tuple([read_part(part, f"{where}.parts[{at}]") for at, part in enumerate(parts)])


def read_part(value: Any, where: str = "part") -> Part:
    part = members.mapping(value, where)
    kind = _kind(part, where)
    # Some callers write the member `content` instead of the one named like the kind.
    body = part.get(kind)
    if body is None and "content" in part:
        body = part["content"]
    metadata = members.metadata(part, where) if "metadata" in part else None
    if kind == "file":
        return _read_file(members.mapping(body, f"{where}.file"), metadata, f"{where}.file")
    if kind == "data":
        return _unpack(PartKind.DATA, members.mapping(body, f"{where}.data"), metadata)
    if not isinstance(body, str):
        raise Untranslatable(f'"{where}.text" must be a string.')
    return _unpack(PartKind.TEXT, body, metadata)


def write_part(part: Part, tag: str = "kind") -> JsonObject:
    if part.kind is PartKind.TEXT or part.kind is PartKind.DATA:
        value, metadata = _pack(part)
        return members.drop_empty(**{tag: part.kind.value, part.kind.value: value, "metadata": metadata})
    file = members.drop_empty(
        bytes=part.value if part.kind is PartKind.RAW else None,
        uri=part.value if part.kind is PartKind.URL else None,
        name=part.filename,
        mimeType=part.media_type,
    )
    return members.drop_empty(**{tag: "file", "file": file, "metadata": part.metadata})


def file_url(part: JsonObject) -> str | None:
    """The url of a file part that has one."""
    kind = part.get("kind") or part.get("type")
    file = part.get("file")
    if file is None and kind == "file":
        file = part.get("content")
    url = file.get("uri") if isinstance(file, dict) and kind in ("file", None) else None
    return url if isinstance(url, str) else None


def with_bytes(part: JsonObject, content: str) -> JsonObject:
    """A file part, with its bytes in place of its url."""
    name = "file" if part.get("file") is not None else "content"
    return {**part, name: {("bytes" if key == "uri" else key): value for key, value in part[name].items()} | {"bytes": content}}


def find_kind(part: JsonObject) -> str | None:
    """The kind of a part without `kind`: its `type`, which is removed, or its first member that is named like a kind."""
    return part.pop("type", None) or next((name for name in KINDS if name in part), None)


def _kind(part: JsonObject, where: str) -> str:
    """A part without a discriminator is accepted if only one kind is possible."""
    kind = part.get("kind") or part.get("type")
    if kind is None:
        present = [name for name in KINDS if part.get(name) is not None]
        kind = present[0] if len(present) == 1 else None
    if kind not in KINDS:
        raise Untranslatable(f'"{where}" must be a text, file or data part.')
    return str(kind)


def _read_file(file: JsonObject, metadata: JsonObject | None, where: str) -> Part:
    inline, link = file.get("bytes"), file.get("uri")
    if (inline is None) == (link is None):
        raise Untranslatable(f'"{where}" must have either bytes or uri.')
    filename, media_type = (members.optional_text(file, name, where) for name in ("name", "mimeType"))
    if inline is None:
        return Part(PartKind.URL, members.text(file, "uri", where), filename, media_type, metadata)
    value = members.base64(members.text(file, "bytes", where), f"{where}.bytes")
    return Part(PartKind.RAW, value, filename, media_type, metadata)


# --- values without a member of their own


def _pack(part: Part) -> tuple[Any, JsonObject | None]:
    """Value and metadata of a text or data part, as they are written."""
    kept = members.drop_empty(mediaType=part.media_type, filename=part.filename)
    wraps = part.kind is PartKind.DATA and not isinstance(part.value, dict)
    value = {"value": part.value} if wraps else part.value
    mark = {_WRAPPED: True} if wraps else {}
    if kept or wraps:
        plain = {**(part.metadata or {}), **mark, **({_OWN: kept} if kept else {})}
        if _unpack_marked(part.kind, value, plain) == part:
            return value, plain
    elif _unpack_own(part.kind, value, part.metadata) is None:
        return value, part.metadata
    # The sender's metadata would be mistaken for ours, or conflicts with it: pack all of it.
    return value, {**mark, _OWN: {**kept, "metadata": part.metadata}}


def _unpack(kind: PartKind, value: Any, metadata: JsonObject | None) -> Part:
    own = _unpack_own(kind, value, metadata) if metadata else None
    return own or Part(kind, value, metadata=metadata)


def _unpack_own(kind: PartKind, value: Any, metadata: JsonObject | None) -> Part | None:
    """The part, if the marks are ours: packing it again gives exactly this value and metadata. Else None."""
    part = _unpack_marked(kind, value, metadata)
    return part if part is not None and _pack(part) == (value, metadata) else None


def _unpack_marked(kind: PartKind, value: Any, metadata: JsonObject | None) -> Part | None:
    """The part, supposing that every mark in it is ours; None if there is no mark."""
    if not metadata or (_OWN not in metadata and _WRAPPED not in metadata):
        return None
    rest = {**metadata}
    wrapped = kind is PartKind.DATA and rest.get(_WRAPPED) is True and value.keys() == {"value"}
    if wrapped:
        del rest[_WRAPPED]
        value = value["value"]
    kept = rest.pop(_OWN) if _is_kept(rest.get(_OWN)) else {}
    if not wrapped and not kept:
        return None
    if "metadata" in kept:
        return None if rest else Part(kind, value, kept.get("filename"), kept.get("mediaType"), kept["metadata"])
    return Part(kind, value, kept.get("filename"), kept.get("mediaType"), rest or None)


def _is_kept(value: Any) -> bool:
    """An object with nothing but what we pack there, and no empty text."""
    if not isinstance(value, dict) or not value or not value.keys() <= _KEPT.keys():
        return False
    return all(isinstance(item, _KEPT[name]) and item != "" for name, item in value.items())
