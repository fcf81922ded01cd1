"""One hub with all workers for the whole session, and a second one with other settings. Tests share them and leave nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.helpers.processes import ROLECALL, HubProcess, Process, free_port, start_hub, start_worker
from tests.seeds.door import Door, wait
from tests.seeds.strangers import Parrot, Receiver

WORKERS = Path(__file__).with_name("workers.py")
ROLES = 7
"""How many of the workers' script are listed when all are there."""


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """Webhooks may go to this machine, and quiet streams get a comment soon."""
    folder = tmp_path_factory.mktemp("hub")
    with start_hub(folder, push_allowed_cidrs="127.0.0.0/8", keep_alive=0.3, log_level="debug", log_format="json") as hub:
        yield hub


@pytest.fixture(scope="session")
def door(hub: HubProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """The hub, once all workers are there."""
    log = tmp_path_factory.mktemp("workers") / "log"
    with Door(hub.url) as door, start_worker(WORKERS, "counter:here", hub.url, log=log):
        wait(lambda: len(door.agents()) >= ROLES)
        yield door


@pytest.fixture(scope="session")
def other_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """No batches, a role for calls that name none, and short leases. Webhooks are guarded as by default, but for what two
    variables allow by the names that they have elsewhere.
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


@pytest.fixture(scope="session")
def other(other_hub: HubProcess) -> Iterator[Door]:
    with Door(other_hub.url) as door:
        yield door


class Locked(NamedTuple):
    """A hub that wants a token, and one that it takes."""

    door: Door
    token: str


@pytest.fixture(scope="session")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    folder = tmp_path_factory.mktemp("locked")
    argv = (*ROLECALL, "tokens", "--data-dir", folder, "new", "--name", "anna")
    with Process(argv, log=folder / "token") as made:
        assert made.wait(30) == 0, made.output
    (token,) = re.findall(r"^rc_\S+$", made.output, re.MULTILINE)
    with start_hub(folder) as hub, Door(hub.url) as door:
        yield Locked(door, token)


@pytest.fixture(scope="session")
def parrot(door: Door) -> Iterator[Parrot]:
    """An agent of another make, in the role of that name."""
    with Parrot() as parrot, door.enrolled("parrot:p", parrot.url, capabilities={"streaming": True}, ttl_seconds=3600):
        yield parrot


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver
