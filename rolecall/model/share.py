"""How a scarce thing is used."""

from __future__ import annotations

from typing import NamedTuple


class ShareUse(NamedTuple):
    """How much of a scarce thing is used now. `limit` 0: its number has none. `largest`: by the workspace that uses most.
    `waiting`: requests that wait for it; where none can wait, workspaces that were refused it lately.
    """

    thing: str
    limit: int
    used: int
    largest: int
    workspaces: int
    waiting: int
    refused: int
