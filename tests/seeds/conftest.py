"""One hub with all workers for all of these tests, and a second one with other settings. Tests share them and clean up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers.processes import ROLECALL, HubProcess, Process, free_port, start_hub, start_worker
from tests.seeds.door import RawClient, wait
from tests.seeds.strangers import Receiver, ScriptedAgent

WORKERS = Path(__file__).with_name("workers.py")
ROLES = 7
"""How many workers the script enrols."""


@pytest.fixture(scope="package")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """Webhooks may go to this machine, and silent streams get a comment after 0.3 s."""
    folder = tmp_path_factory.mktemp("hub")
    with start_hub(folder, push_allowed_cidrs="127.0.0.0/8", keep_alive=0.3, log_level="debug", log_format="json") as hub:
        yield hub


@pytest.fixture(scope="package")
def client(hub: HubProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    """The hub, once all workers are enrolled."""
    log = tmp_path_factory.mktemp("workers") / "log"
    with RawClient(hub.url) as client, start_worker(WORKERS, "counter:here", hub.url, log=log):
        wait(lambda: len(client.agents()) >= ROLES)
        yield client


@pytest.fixture(scope="package")
def other_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """No batches, a default role, and short leases. Webhooks are restricted as by default, except for what two variables
    with names from other systems allow.
    """
    folder = tmp_path_factory.mktemp("other")
    env = {
        "ROLECALL_MAX_BATCH": "0",
        "ROLECALL_DEFAULT_ROLE": "parrot",
        "A2A_AGENT_DISCOVERY_MAX_AGE": "1.5",
        "ROLECALL_HEARTBEAT": "0.3",
        "A2A_AGENT_NAME": "Switchboard",
        "A2A_AGENT_DESCRIPTION": "Knows everybody",
        "PUSH_NOTIFICATION_ALLOWED_HOSTS": "trusted.invalid",
        "PUSH_NOTIFICATION_ALLOWED_CIDRS": "127.9.0.0/16,nonsense",
    }
    with HubProcess(folder, port=free_port(), log=folder / "hub.log", env=env) as hub:
        hub.wait_ready()
        yield hub


@pytest.fixture(scope="package")
def other(other_hub: HubProcess) -> Iterator[RawClient]:
    with RawClient(other_hub.url) as client:
        yield client


class Locked(NamedTuple):
    """A hub that requires a token, and a valid token."""

    client: RawClient
    token: str


@pytest.fixture(scope="package")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    folder = tmp_path_factory.mktemp("locked")
    argv = (*ROLECALL, "tokens", "--data-dir", folder, "new", "--name", "anna")
    with Process(argv, log=folder / "token") as made:
        assert made.wait(30) == 0, made.output
    (token,) = re.findall(r"^rc_\S+$", made.output, re.MULTILINE)
    with start_hub(folder) as hub, RawClient(hub.url) as client:
        yield Locked(client, token)


@pytest.fixture(scope="package")
def scripted(client: RawClient) -> Iterator[ScriptedAgent]:
    """An agent without our SDK, in the role `parrot`."""
    with (
        ScriptedAgent() as scripted,
        client.enrolled("parrot:p", scripted.url, capabilities={"streaming": True}, ttl_seconds=3600),
    ):
        yield scripted


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver
