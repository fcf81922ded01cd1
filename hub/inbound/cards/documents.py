"""Documents that are made of many workers' offers: cards and the catalog. They are made in pieces, kept, and sent in pieces."""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from email.utils import formatdate
from hashlib import sha256
from itertools import groupby
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from quart import Response

from hub.core.registry.directory import Directory
from hub.inbound.api.application import cache_headers
from hub.inbound.api.requests import DocumentQuery
from hub.ports.shares import Slots
from rolecall.model.a2a import JsonObject
from rolecall.model.ids import Caller
from rolecall.model.worker import Offer
from rolecall.protocol.text.jsontext import dump

_KEPT = 16 * 1024 * 1024
"""Bytes of documents that are kept."""
_REST = 20
_BRIEF = 0.005
"""When to make a document, or to look at its sources, has cost more of the processor than this many seconds, it is looked at
again after `_REST` times as long. So the changes of a wide role cost a twentieth of the hub at most, and those
of a small one are seen at once.
"""
_AT_ONCE = 0.001
"""Seconds after which a document that is being made leaves the loop to others for as long."""
_SENT_AT_ONCE = 64 * 1024
_MAX_TAGS = 20
_ETAG = re.compile('"[^"]*"')
"""Without the mark of a weak one: for whoever asks whether a copy is current, both are equal."""
_HTTP_DATES = ("%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y")
"""The usual one, and two that are obsolete and valid."""


class Source(NamedTuple):
    """What one live worker offers. A new enrolment brings another card, also one with the same content."""

    offer: Offer
    registered_at: float


class Document(NamedTuple):
    """`modified`: the second of the wall clock from which on all copies have been this one; it may be the next second. `given`:
    the second of this copy.
    """

    body: bytes
    etag: str
    modified: int
    given: int


class Pace:
    """`spent`: seconds of the processor."""

    def __init__(self, spent: Callable[[], float]) -> None:
        self._spent = spent
        self._began = spent()

    async def rest(self) -> None:
        """To be called after each small piece of work."""
        took = self._spent() - self._began
        if took > _AT_ONCE:
            await asyncio.sleep(took)
            self._began = self._spent()


class Outline(NamedTuple):
    """A role, as lists of roles show it. `since`: when the newest of its live workers was enrolled."""

    role: str
    description: str
    tags: Sequence[str]
    since: float


async def outlines(sources: Sequence[Source], pace: Pace) -> AsyncGenerator[Outline, None]:
    """Of the roles, in the order of `sources`."""
    for role, workers in groupby(sources, key=lambda source: source.offer.worker.role):
        description, tags, since = "", set[str](), 0.0
        for offer, registered_at in workers:
            description, since = description or offer.about, max(since, registered_at)
            if len(tags) < _MAX_TAGS:
                tags |= offer.tags
            await pace.rest()
        yield Outline(role, description, sorted(tags)[:_MAX_TAGS], since)


Make = Callable[[Sequence[Source], Pace], Awaitable[JsonObject]]


class _Kept:
    """`given`: the last second in which a copy was given. `revision`: of the registry when its sources were looked at last.
    `rests_until`: not before.
    """

    __slots__ = ("body", "etag", "given", "modified", "rests_until", "revision", "sources")

    def __init__(self, body: bytes, modified: int, sources: Sequence[Source], revision: int) -> None:
        self.body = body
        self.etag = _etag_of(body)
        self.modified = modified
        self.given = 0
        self.sources = sources
        self.revision = revision
        self.rests_until = 0.0


class Documents:
    """`share`: how many are made at once."""

    def __init__(
        self,
        directory: Directory,
        share: Slots,
        wall: Callable[[], float],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self._directory = directory
        self._share = share
        self._wall = wall
        self._monotonic = monotonic
        self._spent = spent
        self._kept: OrderedDict[tuple[Any, ...], _Kept] = OrderedDict()
        self._size = 0
        self._dropped = 0
        """The last second in which a copy was given of a document that is no longer kept."""
        self._locks: WeakValueDictionary[tuple[Any, ...], asyncio.Lock] = WeakValueDictionary()

    async def get(self, caller: Caller, role: str | None, form: Any, make: Make) -> Document:
        """A document of the caller's workspace, or of one role in it. `form`: which one. It is made again when one of the
        workers is another, or offers another card.
        """
        key = (caller.workspace, role, form)
        if (kept := self._current(key, caller, role)) is None:
            lock = self._locks.setdefault(key, asyncio.Lock())
            async with lock:
                if (kept := self._current(key, caller, role)) is None:
                    async with self._share.slot(caller.workspace):
                        kept = await self._make(key, caller, role, make)
        now = int(self._wall())
        kept.given = max(kept.given, now)
        return Document(kept.body, kept.etag, kept.modified, now)

    def _current(self, key: tuple[Any, ...], caller: Caller, role: str | None) -> _Kept | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        revision = self._directory.revision()
        if kept.revision != revision and self._monotonic() >= kept.rests_until:
            began = self._spent()
            if not _are_same(kept.sources, self._sources(caller, role)):
                return None
            kept.revision, kept.rests_until = revision, self._rest_after(began)
        self._kept.move_to_end(key)
        return kept

    async def _make(self, key: tuple[Any, ...], caller: Caller, role: str | None, make: Make) -> _Kept:
        began, revision = self._spent(), self._directory.revision()
        sources = self._sources(caller, role)
        body = dump(await make(sources, Pace(self._spent)))
        kept = _Kept(body, self._modified(key, body), sources, revision)
        kept.rests_until = self._rest_after(began)
        self._keep(key, kept)
        return kept

    def _modified(self, key: tuple[Any, ...], body: bytes) -> int:
        """Not before a second in which somebody got another copy: a date cannot tell the two apart."""
        last = self._kept.get(key)
        if last is not None and last.body == body:
            return last.modified
        return max(int(self._wall()), (last.given if last is not None else self._dropped) + 1)

    def _rest_after(self, began: float) -> float:
        cost = self._spent() - began
        return self._monotonic() + (_REST * cost if cost > _BRIEF else 0.0)

    def _sources(self, caller: Caller, role: str | None) -> Sequence[Source]:
        return [Source(one.offer, one.registered_at) for one in self._directory.live(caller, role)]

    def _keep(self, key: tuple[Any, ...], kept: _Kept) -> None:
        self._drop(self._kept.pop(key, None))
        self._kept[key] = kept
        self._size += _weight(kept)
        while self._size > _KEPT and len(self._kept) > 1:
            oldest = self._kept.popitem(last=False)[1]
            self._drop(oldest)
            self._dropped = max(self._dropped, oldest.given)

    def _drop(self, kept: _Kept | None) -> None:
        if kept is not None:
            self._size -= _weight(kept)


def _weight(kept: _Kept) -> int:
    return 1_000 + len(kept.body) + 100 * len(kept.sources)


def _are_same(before: Sequence[Source], now: Sequence[Source]) -> bool:
    if len(before) != len(now):
        return False
    return all(old.offer.card is new.offer.card for old, new in zip(before, now, strict=True))


def document_response(document: Document, known: DocumentQuery, media: str) -> Response:
    """`known`: what the caller has of it."""
    body = document.body
    if _has(known, document):
        response = Response(status=304)
    elif len(body) <= _SENT_AT_ONCE:
        response = Response(body, content_type=media)
    else:
        response = Response(_pieces(body), content_type=media, headers={"Content-Length": str(len(body))})
    response.headers["ETag"] = document.etag
    response.headers["Last-Modified"] = formatdate(min(document.modified, document.given), usegmt=True)
    response.headers.update(cache_headers())
    return response


def _has(known: DocumentQuery, document: Document) -> bool:
    """Whether the caller's copy is this one. A date counts only without a tag, and one in the future counts for nothing."""
    if known.etag is not None:
        return known.etag.strip() == "*" or document.etag in _ETAG.findall(known.etag)
    since = _second_of(known.since)
    return since is not None and document.modified <= since <= document.given


def _etag_of(body: bytes) -> str:
    return f'"{sha256(body).hexdigest()[:32]}"'


def _second_of(date: str) -> int | None:
    """None: not a date of HTTP."""
    for form in _HTTP_DATES:
        try:
            return int(datetime.strptime(date.strip(), form).replace(tzinfo=UTC).timestamp())
        except ValueError:
            pass
    return None


async def _pieces(body: bytes) -> AsyncGenerator[bytes, None]:
    """The server takes the next one when its client has taken most of the last: slow clients share one body."""
    for start in range(0, len(body), _SENT_AT_ONCE):
        yield body[start : start + _SENT_AT_ONCE]
