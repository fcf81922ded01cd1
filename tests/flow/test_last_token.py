"""What a hub serves after its last token was removed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub.app import create_app
from hub.identity.tokens import FILE_NAME, new, revoke
from hub.settings.model import Settings
from rolecall.model.principal import Kind, Principal

pytestmark = pytest.mark.real_time


@pytest.mark.parametrize(("host", "ends_as"), [("0.0.0.0", 401), ("127.0.0.1", 200)])
@pytest.mark.parametrize("how", ["revoked", "deleted"])
async def test_removing_the_last_token_does_not_open_the_hub_to_other_machines(
    tmp_path: Path, host: str, ends_as: int, how: str
) -> None:
    path = tmp_path / FILE_NAME
    token, _ = new(path, Principal("me", Kind.ADMIN), lasts=None, now=0.0)
    async with create_app(Settings(data_dir=tmp_path, host=host), port=1).test_app() as running:
        application: Any = running.app
        async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://127.0.0.1") as http:

            async def answers(**headers: str) -> int:
                return (await http.get("/registry/agents", headers=headers)).status_code

            shown = {"Authorization": f"Bearer {token}"}
            assert (await answers(**shown), await answers()) == (200, 401)
            revoke(path, "me") if how == "revoked" else path.unlink()
            for _ in range(100):  # the file is read once a second
                if (await answers(**shown), await answers()) == (ends_as, ends_as):
                    break
                await asyncio.sleep(0.05)
            assert (await answers(**shown), await answers()) == (ends_as, ends_as)
            card = (await http.get("/.well-known/agent-card.json")).json()
            assert bool(card.get("securitySchemes")) == (ends_as == 401)
