"""Task ids as people type them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from rolecall.cli.tasks.lists import tasks

if TYPE_CHECKING:
    from worker_sdk import HubClient

_SHORTEST = 4
_LOOKED_AT = 1_000
"""Of the newest tasks."""
_FULL = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


async def whole_id(hub: HubClient, text: str, **wanted: str | bool | None) -> str:
    """The id of the one task whose id begins or ends with `text`, among the newest. Whatever cannot be a part of an id is one
    that a caller chose, and stays as it is. UsageError: it fits several.
    """
    if _FULL.fullmatch(text) or len(text) < _SHORTEST or not re.fullmatch(r"[0-9a-f-]+", text):
        return text
    found: list[str] = []
    looked_at = 0
    async for task in tasks(hub, **wanted):
        looked_at += 1
        if task["id"].startswith(text) or task["id"].endswith(text):
            found.append(task["id"])
        if looked_at == _LOOKED_AT:
            break
    if len(found) > 1:
        shown = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
        raise click.UsageError(f"{text} fits {len(found)} tasks: {shown}")
    return found[0] if found else text
