"""A real agent that somebody enrols with its URL alone, at a real hub."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.helpers.client import call, text_message
from tests.helpers.processes import ROLECALL, ROOT, HubProcess, Process, free_port, start_hub, wait_for

AGENT = Path(__file__).with_name("card_agent.py")
CARD = {
    "protocolVersion": "0.3.0",
    "name": "Parrot",
    "description": "Says it again.",
    "url": "http://0.0.0.0:1/",
    "version": "1",
    "capabilities": {"pushNotifications": True},
    "skills": [{"id": "say", "name": "Say", "description": "Says it.", "tags": ["bird"]}],
}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    with start_hub(tmp_path / "hub", lease_ttl=60) as hub:
        yield hub


def enrol(hub: HubProcess, **offer: Any) -> dict[str, Any]:
    answer = httpx.put(f"{hub.url}/registry/agents/parrot/p", json=offer, trust_env=False)
    assert answer.status_code in (200, 201), answer.text
    return shown(hub)


def shown(hub: HubProcess) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{hub.url}/registry/agents/parrot:p", trust_env=False).json()
    return found


def until(hub: HubProcess, holds: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    wait_for(lambda: bool(holds(shown(hub))))
    return shown(hub)


def test_an_agent_enrolled_by_its_url_alone_is_described_by_its_own_card(hub: HubProcess, tmp_path: Path) -> None:
    card, port = tmp_path / "card.json", free_port()
    card.write_text(json.dumps(CARD))
    url = f"http://127.0.0.1:{port}/"
    before = enrol(hub, url=url, boot="one")
    assert before["skills"] == []
    note = until(hub, lambda agent: "refused" in agent["card_read"]["note"])["card_read"]
    assert note == {"url": "", "at": None, "note": f"http://127.0.0.1:{port}: connection refused"}
    with Process([sys.executable, AGENT, "127.0.0.1", str(port), card, "s3cret"], log=tmp_path / "agent.log") as server:
        server.wait_until(lambda: _is_open(port))
        enrol(hub, url=url, boot="two", authorization="Bearer s3cret", labels={"zone": "a"})
        agent = until(hub, lambda agent: agent["card_read"]["at"])
        assert (agent["description"], agent["capabilities"]) == (
            "Says it again.",
            {"streaming": False, "push_notifications": True},
        )
        assert agent["skills"][0]["id"] == "say"
        assert agent["card_read"]["url"] == f"{url}.well-known/agent-card.json"
        task = call(f"{hub.url}/agents/parrot/", "message/send", text_message("hello"))["result"]
        assert task["artifacts"][0]["parts"][0]["text"] == "echo: hello"
        card.write_text(json.dumps({**CARD, "description": "Says it louder."}))
        assert httpx.post(f"{hub.url}/registry/agents/parrot:p/probe", trust_env=False).json()["reachable"]
        until(hub, lambda agent: agent["description"] == "Says it louder.")
        done = subprocess.run(
            [*ROLECALL, "agents", "show", "parrot:p", "--hub", hub.url], capture_output=True, text=True, cwd=ROOT, check=True
        )
        assert f"from {url}.well-known/agent-card.json" in done.stdout
    feed = httpx.get(f"{hub.url}/.well-known/ai-catalog.json", trust_env=False).json()
    assert "Says it louder." in json.dumps(feed)


def test_a_card_that_was_sent_is_not_asked_for(hub: HubProcess, tmp_path: Path) -> None:
    card, port = tmp_path / "card.json", free_port()
    card.write_text(json.dumps(CARD))
    log = tmp_path / "agent.log"
    with Process([sys.executable, AGENT, "127.0.0.1", str(port), card], log=log) as agent:
        agent.wait_until(lambda: _is_open(port))
        sent = enrol(hub, url=f"http://127.0.0.1:{port}/", card={"name": "Sent"})
        assert "card_read" not in sent
        assert "card_read" not in enrol(hub, url=f"http://127.0.0.1:{port}/", capabilities={"streaming": False})
        httpx.post(f"{hub.url}/registry/agents/parrot:p/probe", trust_env=False)
        call(f"{hub.url}/agents/parrot/", "message/send", text_message("hello"))
        assert "GET" not in agent.output


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
