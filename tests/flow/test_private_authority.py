"""Workers and webhooks whose certificates only an authority of the operator's own signs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from quart.testing.app import LifespanError

from hub.run import check
from hub.settings.model import Settings
from rolecall.errors import ConfigError
from tests.flow.test_last_token import started
from tests.helpers.certificates import new_authority
from tests.helpers.client import text_message
from tests.helpers.raw_server import Peer, RawServer, Script, answer

pytestmark = pytest.mark.real_time


def an_agent(delivered: asyncio.Event) -> Script:
    """Its card, one completed task for each call, and the receiver of its webhooks."""

    async def script(peer: Peer) -> None:
        while (request := await peer.read_request()) is not None:
            body: dict[str, object] = {"name": "Echo", "capabilities": {}, "skills": []}
            if request.line.startswith("POST /hook"):
                delivered.set()
            elif request.line.startswith("POST"):
                task = {"id": "t", "contextId": "c", "kind": "task", "status": {"state": "completed"}}
                body = {"jsonrpc": "2.0", "id": json.loads(request.body)["id"], "result": task}
            await peer.write(answer(json.dumps(body).encode()))

    return script


@pytest.mark.parametrize("trusted", [True, False])
async def test_the_hub_calls_and_tells_https_servers_whose_authority_it_is_given(tmp_path: Path, trusted: bool) -> None:
    authority, delivered = new_authority(tmp_path / "authority"), asyncio.Event()
    more = {"ca_file": authority.file} if trusted else {}
    async with (
        RawServer(an_agent(delivered), tls=authority.certificate().server_context()) as server,
        started(tmp_path / "data", push_allowed_hosts="127.0.0.1", **more) as http,
    ):
        offer = {"url": server.url, "boot": "one", "description": "Echo"}
        assert (await http.put("/registry/agents/echo/a", json=offer)).status_code in (200, 201)
        config = {"configuration": {"pushNotificationConfig": {"url": f"{server.url}hook"}}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {**text_message("x"), **config}}
        called = (await http.post("/agents/echo/", json=body)).json()
        if trusted:
            assert called["result"]["status"]["state"] == "completed"
            await asyncio.wait_for(delivered.wait(), 5)
        else:
            assert "certificate is not trusted" in called["error"]["message"]


@pytest.mark.parametrize("problem", ["cannot be read (No such file or directory)", "holds no certificate in PEM"])
async def test_a_hub_does_not_start_without_authorities_that_it_is_told_to_trust(tmp_path: Path, problem: str) -> None:
    file = tmp_path / "ca.pem"
    if "PEM" in problem:
        file.write_text("no")
    with pytest.raises(ConfigError) as found:
        check(Settings(data_dir=tmp_path, ca_file=file))
    assert list(found.value.problems) == [f"ca_file: {file} {problem}."]
    with pytest.raises(LifespanError, match="ca_file"):
        async with started(tmp_path, ca_file=file):
            pass
