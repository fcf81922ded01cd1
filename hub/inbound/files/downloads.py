"""Files for browsers. They come from strangers: a page of the hub's own origin must never be made of one."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from os.path import splitext
from typing import Any, NamedTuple
from urllib.parse import quote

from quart import Response, request
from werkzeug.http import parse_etags, parse_range_header

from hub.core.files.files import Files
from hub.core.shares.share import SMALL
from hub.core.token_watch import TokenUse
from hub.inbound.api.application import problem
from hub.inbound.api.requests import Conditions
from rolecall.errors import HubError, RangeInvalid
from rolecall.model.content import Download
from rolecall.model.ids import Caller
from rolecall.model.task import StoredFile

log = logging.getLogger(__name__)

DOWNLOAD: Mapping[int, Any] = {200: {"*/*": bytes}, 206: {"*/*": bytes}, 304: None}
_TOKEN = "[a-z0-9][a-z0-9!#$&^_.+-]{0,62}"
_MEDIA_TYPE = re.compile(rf"({_TOKEN}/{_TOKEN})(?:.*;\s*(charset={_TOKEN})\s*$)?", re.DOTALL)
_NOT_IN_NAMES = str.maketrans(dict.fromkeys('<>:"|?*', "_"))
"""What some systems refuse in the name of a file."""
_SLICE = SMALL // 2
_LONGEST_NAME = 200
"""Bytes, of 255 that file systems take."""


class Selection(NamedTuple):
    """What of a file is answered. A status of 304: nothing."""

    status: int
    headers: dict[str, str]
    start: int
    stop: int


def select(name: str, media_type: str, size: int, conditions: Conditions, *, version: str, method: str) -> Selection:
    """All of a file or one range, to be stored and never shown. `version` changes with the content. RangeInvalid."""
    etag = f'"{version}"'
    headers = {
        "Content-Type": _media_type(media_type),
        "Content-Disposition": disposition(name),
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Cache-Control": "private, no-cache",
        "Accept-Ranges": "bytes",
        "ETag": etag,
    }
    if parse_etags(conditions.etag).contains_weak(version):
        return Selection(304, headers, 0, 0)
    counts = method == "GET" and conditions.if_range in ("", etag)
    wanted = parse_range_header(conditions.range) if counts else None
    if wanted is None or wanted.units != "bytes" or len(wanted.ranges) != 1:
        return Selection(200, headers, 0, size)
    first, _ = wanted.ranges[0]
    found = (0, size) if first is not None and first <= -size else wanted.range_for_length(size)
    if found is None or not size:
        raise RangeInvalid(size)
    start, stop = found
    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    return Selection(206, headers, start, stop)


def download(file: Download, conditions: Conditions, *, version: str) -> Response:
    try:
        chosen = select(file.name, file.media_type, len(file.content), conditions, version=version, method=request.method)
    except RangeInvalid as error:
        return _out_of_range(error)
    return Response(file.content[chosen.start : chosen.stop], status=chosen.status, headers=chosen.headers)


def download_stored(file: StoredFile, conditions: Conditions, files: Files, caller: Caller, until: TokenUse) -> Response:
    """As it is stored, streamed as long as the caller's token is valid. Overloaded."""
    with files.transfer(caller):
        pass  # refused now, and not when the head has been sent
    try:
        chosen = select(file.name, file.media_type, file.offset, conditions, version=file.sha256, method=request.method)
    except RangeInvalid as error:
        return _out_of_range(error)
    if request.method == "HEAD" or chosen.status == 304:
        response = Response(b"", status=chosen.status, headers=chosen.headers)
    else:
        response = Response(_pieces(file, chosen, files, caller, until), status=chosen.status, headers=chosen.headers)
        response.timeout = None
    if chosen.status != 304:
        response.headers["Content-Length"] = str(chosen.stop - chosen.start)
    return response


async def _pieces(
    file: StoredFile, chosen: Selection, files: Files, caller: Caller, until: TokenUse
) -> AsyncGenerator[bytes, None]:
    """Each small enough that it is not counted as an answer. Ends early if the token ends, or the file cannot be read to its
    end: the client sees that its answer is not whole.
    """
    try:
        with files.transfer(caller), until:
            async with aclosing(files.content(file, chosen.start, chosen.stop)) as content:
                async for piece in content:
                    for at in range(0, len(piece), _SLICE):
                        if until.ended:
                            return
                        yield piece[at : at + _SLICE]
    except HubError as error:
        log.warning("a download was broken off", extra={"event": "download_broken", "why": type(error).__name__})


def _out_of_range(error: RangeInvalid) -> Response:
    refused = problem(error)
    refused.headers["Content-Range"] = f"bytes */{error.size}"
    return refused


def disposition(name: str) -> str:
    """An attachment of a harmless name: for old readers in ASCII (RFC 6266), for the others as it is (RFC 5987)."""
    safe = safe_name(name)
    ascii_only = "".join(character if character.isascii() else "_" for character in safe).replace("%", "_")
    plain = f'attachment; filename="{ascii_only}"'
    return plain if ascii_only == safe else f"{plain}; filename*=UTF-8''{quote(safe, safe='')}"


def safe_name(name: str) -> str:
    """A file's name without its folders, and without what could hide or change its ending."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1]
    visible = "".join(character for character in last if unicodedata.category(character)[0] not in "CZ" or character == " ")
    return _cut(visible.translate(_NOT_IN_NAMES).strip(" .")) or "download"


def _cut(name: str) -> str:
    """Its suffix stays."""
    stem, suffix = splitext(name)
    if len(suffix) > 16:
        stem, suffix = name, ""
    return stem.encode()[: _LONGEST_NAME - len(suffix.encode())].decode(errors="ignore") + suffix


def _media_type(written: str) -> str:
    """Without its parameters but the encoding of a text."""
    found = _MEDIA_TYPE.match(written.lower())
    if found is None:
        return "application/octet-stream"
    return f"{found[1]}; {found[2]}" if found[2] else found[1]
