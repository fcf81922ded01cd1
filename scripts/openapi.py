"""Write docs/reference/openapi.json from the hub's routes. A test fails if they differ: run this again."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from hub.app import create_app
from hub.inbound.api.openapi import PATH
from hub.settings.model import Settings

_LOCAL = ("127.0.0.1", 8420)
"""A hub without tokens answers its own machine only."""
FILE = Path(__file__).parents[1] / "docs" / "reference" / "openapi.json"


async def written() -> str:
    """The description as a hub serves it, indented for people."""
    async with create_app(Settings.of(store="memory:"), port=8420).test_app() as running:
        answer = await running.test_client().get(PATH, scope_base={"client": _LOCAL, "server": _LOCAL})
        served = await answer.get_json()
    return json.dumps(served, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    FILE.write_text(asyncio.run(written()), encoding="utf-8")
    sys.stdout.write(f"{FILE}\n")


if __name__ == "__main__":
    main()
