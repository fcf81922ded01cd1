"""Large files between our SDK, which sends them by reference, and the official ones, which know nothing of that."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.helpers.processes import HubProcess
from tests.interop.conftest import AGENTS, RoleUrl
from tests.interop.content import ArtifactUpdate, Part
from tests.interop.driven import Client
from worker_sdk import File, HubClient, Reply

CONTENT = Random(1).randbytes(400_000)
SENT = (Part("text", "echo"), Part("raw", CONTENT, "large.bin", "application/octet-stream"))


def test_an_official_client_gets_the_bytes_of_what_our_worker_uploads(sdk_client: Client, role_url: RoleUrl) -> None:
    own = role_url("own")
    task = sdk_client.run(own, SENT)
    assert tuple(part for artifact in task.artifacts for part in artifact.parts) == SENT
    assert sdk_client.get(own, task.id) == task
    events = sdk_client.stream(own, SENT).events
    updates = [event.artifact.parts for event in events if isinstance(event, ArtifactUpdate)]
    assert [part for parts in updates for part in parts] == list(SENT)


@pytest.mark.parametrize("role", AGENTS)
def test_an_official_agent_gets_the_bytes_of_what_our_client_uploads(hub: HubProcess, role_url: RoleUrl, role: str) -> None:
    role_url(role)
    reply = asyncio.run(asked(hub.url, role))
    assert (reply.state, reply.text) == ("completed", "echo")
    (file,) = reply.files
    assert (file.name, file.media_type, file.raw) == ("large.bin", "application/octet-stream", CONTENT)
    sent = reply.raw["history"][0]["parts"][1]["file"]
    assert sent["uri"].startswith(f"{hub.url}/registry/files/"), "what our client sent and sees is a url"
    assert bool(file.url) == (role == "own"), "what an official agent sends is in its event"


async def asked(url: str, role: str) -> Reply:
    async with HubClient(url) as hub:
        return await hub.send_to_agent(role, "echo", files=[File("large.bin", "application/octet-stream", CONTENT)])
