"""What a caller is told of itself on a hub without tokens. tests/acceptance/test_workspaces.py has those with tokens."""

from __future__ import annotations

from hub.app import create_app
from hub.settings.model import Settings

LOCAL = ("127.0.0.1", 8420)


async def test_without_tokens_every_caller_is_the_local_admin() -> None:
    async with create_app(Settings.of(store="memory:"), port=8420).test_app() as running:
        answer = await running.test_client().get("/registry/me", scope_base={"client": LOCAL, "server": LOCAL})
        assert await answer.get_json() == {
            "name": "local",
            "kind": "admin",
            "workspace": "default",
            "rights": ["read", "call", "enrol", "operate"],
        }
