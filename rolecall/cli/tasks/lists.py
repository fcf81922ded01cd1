"""Whole lists of tasks, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from rolecall.model.a2a import JsonObject

if TYPE_CHECKING:
    from worker_sdk import HubClient

_PAGE = 100


async def tasks(hub: HubClient, **wanted: str | bool | None) -> AsyncIterator[JsonObject]:
    """All of the tasks that are wanted, page by page. One that changes meanwhile comes once."""
    seen = set[str]()
    async for task in _all_pages(hub.tasks, "tasks", wanted):
        if task["id"] not in seen:
            seen.add(task["id"])
            yield task


async def newest(
    hub: HubClient, limit: int, *, all_holders: bool = False, **wanted: str | None
) -> tuple[list[JsonObject], int]:
    """So many of the tasks that are wanted, and how many there are."""
    found: dict[str, JsonObject] = {}
    cursor = None
    while True:
        page = await hub.tasks(limit=min(limit - len(found), _PAGE), cursor=cursor, all_holders=all_holders, **wanted)
        found |= {task["id"]: task for task in page["tasks"]}
        cursor = page.get("next_cursor")
        if len(found) >= limit or not cursor:
            return list(found.values()), int(page["total"])


async def first(limit: int | None, items: AsyncIterator[JsonObject]) -> AsyncIterator[JsonObject]:
    """At most so many of them."""
    left = limit
    async for item in items:
        if left is not None and left <= 0:
            return
        left = None if left is None else left - 1
        yield item


def summaries(hub: HubClient, **wanted: str | None) -> AsyncIterator[JsonObject]:
    """Of the tasks whose logs have been deleted."""
    return _all_pages(hub.summaries, "summaries", wanted)


async def _all_pages(
    read: Callable[..., Awaitable[JsonObject]], member: str, wanted: Mapping[str, str | bool | None]
) -> AsyncIterator[JsonObject]:
    cursor = None
    while True:
        page = await read(limit=_PAGE, cursor=cursor, **wanted)
        for item in page[member]:
            yield item
        if not (cursor := page.get("next_cursor")):
            return
