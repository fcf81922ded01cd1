"""What a hub serves after its last token was removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from hub.app import create_app
from hub.identity.tokens import FILE_NAME, new, revoke
from hub.settings.model import Settings
from rolecall.model.principal import Kind, Principal

pytestmark = pytest.mark.real_time


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
@pytest.mark.parametrize("how", ["revoked", "deleted"])
async def test_removing_the_last_token_opens_the_hub_to_nobody(
    tmp_path: Path, host: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub.identity.tokens._REPLACED_WITHIN", 0.1)
    path = tmp_path / FILE_NAME
    token, _ = new(path, Principal("me", Kind.ADMIN), lasts=None, now=0.0)
    async with started(tmp_path, host=host) as http:

        async def answers(**headers: str) -> int:
            return (await http.get("/registry/agents", headers=headers)).status_code

        shown = {"Authorization": f"Bearer {token}"}
        assert (await answers(**shown), await answers()) == (200, 401)
        revoke(path, "me") if how == "revoked" else path.unlink()
        for _ in range(100):  # the file is read once a second
            if (await answers(**shown), await answers()) == (401, 401):
                break
            await asyncio.sleep(0.05)
        assert (await answers(**shown), await answers()) == (401, 401)
        refused = (await http.get("/registry/agents")).json()
        assert refused["reason"] == "NO_TOKENS"
        assert "`rolecall tokens new`" in refused["detail"]
        assert "securitySchemes" in (await http.get("/.well-known/agent-card.json")).json()


@pytest.mark.parametrize("how", ["revoked", "deleted"])
async def test_a_hub_without_its_last_token_stays_locked_after_a_restart_until_there_is_a_new_one(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / FILE_NAME
    new(path, Principal("me", Kind.ADMIN), lasts=None, now=0.0)
    async with started(tmp_path):
        assert "refuses every caller" not in caplog.text
    revoke(path, "me") if how == "revoked" else path.unlink()
    async with started(tmp_path) as http:
        assert "the hub has had tokens and has none now, so it refuses every caller" in caplog.text
        assert [(await http.get(page)).status_code for page in ("/registry/agents", "/agents", "/health")] == [401, 401, 200]
        token, _ = new(path, Principal("me", Kind.ADMIN), lasts=None, now=0.0)
        for _ in range(100):
            if (status := (await http.get("/agents", headers={"X-API-Key": token})).status_code) == 200:
                break
            await asyncio.sleep(0.05)
        assert (status, (await http.get("/agents")).status_code) == (200, 401)


async def test_a_hub_that_cannot_read_its_tokens_names_the_cause_at_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE_NAME).write_text("{")
    async with started(tmp_path) as http:
        assert (await http.get("/registry/agents")).status_code == 401
        assert "the token file cannot be used" in caplog.text and "has none now" not in caplog.text
    caplog.clear()
    async with started(tmp_path, admin_token="t" * 40) as http:
        (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
        assert f"{tmp_path / FILE_NAME} is not a token file" in vars(error)["why"]
        refused = await http.get("/registry/agents", headers={"X-API-Key": "rc_other"})
        assert (refused.status_code, refused.json()["reason"]) == (401, "NO_TOKENS")
        assert "cannot read its token file" in refused.json()["detail"]
        shown = {"X-API-Key": "t" * 40}
        assert 'a2a_hub_ready{check="tokens"} 0.0' in (await http.get("/metrics", headers=shown)).text
        assert (await http.get("/readyz", headers=shown)).text == "not ready: tokens\n"
        (tmp_path / FILE_NAME).write_text('{"tokens": []}')
        for _ in range(100):
            if (ready := await http.get("/readyz")).status_code == 200:
                break
            await asyncio.sleep(0.05)
        assert ready.text == "ok\n"
        assert 'a2a_hub_ready{check="tokens"} 1.0' in (await http.get("/metrics", headers=shown)).text


async def test_a_hub_stays_locked_without_the_token_that_it_was_started_with(tmp_path: Path) -> None:
    async with started(tmp_path, admin_token="t" * 40) as http:
        assert (await http.get("/agents", headers={"X-API-Key": "t" * 40})).status_code == 200
    async with started(tmp_path) as http:
        assert (await http.get("/agents", headers={"X-API-Key": "t" * 40})).status_code == 401


async def test_a_hub_in_memory_forgets_that_it_had_tokens(tmp_path: Path) -> None:
    async with started(tmp_path, store="memory:", admin_token="t" * 40):
        pass
    async with started(tmp_path, store="memory:") as http:
        assert (await http.get("/agents")).status_code == 200


async def test_a_hub_behind_a_proxy_on_its_machine_still_refuses_other_hosts_and_takes_workers_of_its_machine(
    tmp_path: Path,
) -> None:
    async with started(tmp_path, admin_token="t" * 40, public_url="https://agents.example.com") as http:
        http.headers["X-API-Key"] = "t" * 40
        hosts = ("agents.example.com", "AGENTS.example.com:443", "127.0.0.1:1", "evil.example")
        assert [(await http.get("/agents", headers={"Host": host})).status_code for host in hosts] == [200, 200, 200, 421]
        offer = {"url": "http://127.0.0.1:9/", "boot": "b"}
        assert (await http.put("/registry/agents/echo/a", json=offer)).status_code == 201


@asynccontextmanager
async def started(folder: Path, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with create_app(Settings(data_dir=folder, **settings), port=1).test_app() as running:
        application: Any = running.app
        async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://127.0.0.1") as http:
            yield http
