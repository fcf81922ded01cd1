"""A feed of the hub: changes as they come, resumed after a cut where it was."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

from rolecall.model.a2a import JsonObject
from rolecall.protocol.sse import FrameReader, FrameTooLong
from rolecall.protocol.text.jsontext import NotJson, parse
from worker_sdk.calling.http import HubLink
from worker_sdk.errors import HubBusy, HubUnreachable, RolecallError, StreamLost

_SLOWEST = 5.0


class HubFeed:
    """`async for change in feed:` never ends by itself. It waits for a hub that is gone, and goes on after the last change."""

    def __init__(self, link: HubLink, path: str, query: Mapping[str, Any], after: str | None) -> None:
        self._link = link
        self._path, self._query = path, query
        self.cursor = after
        """The revision to go on after."""
        self._has_begun = False

    async def __aiter__(self) -> AsyncIterator[JsonObject]:
        """RolecallError: the hub refuses the feed."""
        pause = 0.1
        while True:
            try:
                async for change in self._once():
                    pause = 0.1
                    yield change
            except (HubBusy, HubUnreachable, StreamLost):
                if not self._has_begun:
                    raise
            await asyncio.sleep(random.uniform(pause / 2, pause))
            pause = min(pause * 2, _SLOWEST)

    async def _once(self) -> AsyncIterator[JsonObject]:
        headers = {"accept": "text/event-stream"} | ({} if self.cursor is None else {"last-event-id": self.cursor})
        async with self._link.send("GET", self._path, headers=headers, query=self._query) as answer:
            self._has_begun = True
            reader = FrameReader()
            async for chunk in answer.aiter_raw():
                try:
                    frames = reader.feed(chunk)
                except FrameTooLong as error:
                    raise RolecallError(f"The hub sent {error}.") from None
                for frame in frames:
                    self.cursor = frame.id or self.cursor
                    yield _document(frame.data)
                self.cursor = reader.last_id or self.cursor


def _document(data: bytes) -> JsonObject:
    try:
        found = parse(data)
    except NotJson:
        raise RolecallError("The hub sent a change that is not JSON.") from None
    if not isinstance(found, dict):
        raise RolecallError("The hub sent a change that is no object.")
    return found
