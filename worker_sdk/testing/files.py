"""The files of a test: by reference without a hub."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from rolecall.model.a2a import JsonObject
from worker_sdk.files.file import File
from worker_sdk.files.parts import INLINE_TOGETHER, Files, by_reference, file_at, inline


class TestFiles(Files):
    """As one worker of the test sees them. `kept`: those of all, by their urls. They stay where they are, in memory or on
    disk. `threshold`: as in HubFiles.
    """

    __test__ = False

    def __init__(self, kept: dict[str, File], threshold: int | None) -> None:
        self._kept = kept
        self._threshold = threshold

    @property
    def stores(self) -> bool:
        return self._threshold is not None

    def find(self, part: JsonObject) -> File | None:
        url = str(part["file"].get("uri"))
        return file_at(url, self, part) if url in self._kept else None

    async def part(self, file: File, *, room: int = INLINE_TOGETHER) -> JsonObject:
        size = await file.content.measure()
        if not file.url and (self._threshold is None or size <= min(self._threshold, room)):
            return await inline(file)
        url = file.url or f"test://files/{len(self._kept)}"
        self._kept.setdefault(url, file)
        return by_reference(file, url, {"size": size})

    def chunks(self, url: str, offset: int = 0) -> AsyncGenerator[bytes, None]:
        return self._kept[url].content.pieces(offset)

    async def size_of(self, url: str) -> int:
        return await self._kept[url].content.measure()
