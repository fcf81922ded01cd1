"""Write docs/reference/openapi.json from the hub's routes. A test fails if they differ: run this again."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import httpx

from hub.app import assemble
from hub.inbound.api.openapi import PATH
from hub.settings.model import Settings

FILE = Path(__file__).parents[1] / "docs" / "reference" / "openapi.json"


async def written() -> str:
    """The description as a hub serves it, indented for people."""
    async with assemble(Settings.of(store="memory:"), port=8420) as rolecall:
        transport = httpx.ASGITransport(app=rolecall.application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            served = (await client.get(PATH)).raise_for_status().json()
    return json.dumps(served, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    FILE.write_text(asyncio.run(written()), encoding="utf-8")
    sys.stdout.write(f"{FILE}\n")


if __name__ == "__main__":
    main()
