"""The tokens of a worker and a client are replaced and revoked while both run: nothing of theirs ends."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from hub.identity import tokens
from rolecall import AuthError, HubClient
from rolecall.model.principal import Kind, Principal
from tests.helpers.processes import start_hub, start_worker


class TokenHolder:
    """One holder, and the file that its processes read."""

    def __init__(self, folder: Path, name: str, kind: Kind) -> None:
        self._tokens = folder / "hub" / "tokens.json"
        self._holder = Principal(name, kind, roles=("*",) if kind is Kind.WORKER else ())
        self.file = folder / f"{name}.token"
        self.entry = self._write()

    def _write(self) -> tokens.TokenEntry:
        token, entry = tokens.new(self._tokens, self._holder, lasts=None, now=time.time())
        next_one = self.file.with_suffix(".new")
        next_one.write_text(token)
        next_one.replace(self.file)
        return entry

    def replace(self) -> tokens.TokenEntry:
        """A new token is where the old one was. Returns the old one's entry."""
        old, self.entry = self.entry, self._write()
        return old

    def revoke(self, entry: tokens.TokenEntry) -> None:
        tokens.revoke(self._tokens, entry.id)


async def test_a_worker_and_a_client_run_on_with_new_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serves, calls = TokenHolder(tmp_path, "serves", Kind.WORKER), TokenHolder(tmp_path, "calls", Kind.CLIENT)
    monkeypatch.delenv("ROLECALL_TOKEN", raising=False)
    monkeypatch.setenv("ROLECALL_TOKEN_FILE", str(calls.file))
    with start_hub(tmp_path / "hub") as hub:
        env = {"ROLECALL_TOKEN_FILE": str(serves.file)}
        source = "tests.acceptance.workers:counter"
        worker = start_worker(source, "counter:a", hub.url, log=tmp_path / "log", env=env, enrolled=False)
        with worker:
            async with HubClient(hub.url) as client:
                while not (await client.discover_agents()):  # noqa: ASYNC110  there is no event to wait for
                    await asyncio.sleep(0.1)
                running = asyncio.create_task(client.call("counter", "55 0.1"))
                await asyncio.sleep(0.5)
                old = [holder.replace() for holder in (serves, calls)]
                await asyncio.sleep(2.5)  # the worker looks every two seconds
                for holder, entry in zip((serves, calls), old, strict=True):
                    holder.revoke(entry)
                reply = await running
                assert reply.text == "".join(f"{number} " for number in range(55))
                assert [agent.raw["epoch"] for agent in await client.discover_agents()] == [1]
            monkeypatch.setenv("ROLECALL_TOKEN", "unknown")
            async with HubClient(hub.url) as client:
                with pytest.raises(AuthError):
                    await client.health()
                    await client.roles()
