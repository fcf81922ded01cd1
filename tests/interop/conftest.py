"""One hub and its agents for all of these tests, and every client that plays through them."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import httpx
import pytest

from tests.helpers.processes import (
    ROOT,
    HubProcess,
    Process,
    free_port,
    has_read_card,
    running,
    start_announce,
    start_hub,
    start_worker,
    status_of,
)
from tests.helpers.tools import missing, node, sdk_python
from tests.interop.driven import Client, OwnDriver, SdkDriver

HERE = Path(__file__).parent
RoleUrl = Callable[[str], str]
ClientNamed = Callable[[str], Client]

_AGENTS = {
    "own": (),
    "on-0.3": ("0.3", "on_0_3.py"),
    "on-0.3-plain": ("0.3", "on_0_3.py", "no-streaming"),
    "on-1.x": ("1.x", "on_1_x.py"),
    "on-1.x-rest": ("1.x", "on_1_x.py", "rest"),
    "on-1.x-plain": ("1.x", "on_1_x.py", "rest", "no-streaming"),
    "on-1.x-by-url": ("1.x", "on_1_x.py"),
    "on-0.3-configured": ("0.3", "on_0_3.py"),
}
"""Roles, and who serves them: this project's worker; agents on the SDKs of both versions, of which the newer ones speak 1.0
alone, one of them as REST alone; and of each version one that cannot stream. Most are announced; one is enrolled with its URL
alone, and one stands in the hub's own configuration.
"""
AGENTS = tuple(_AGENTS)
MAIN_AGENTS = ("own", "on-0.3", "on-1.x", "on-1.x-rest")
SDK_CLIENTS = ("python-0.3", "javascript-0.3", "python-1.x", "python-1.x-rest", "javascript-1.x", "javascript-1.x-rest")
PAIRS = (
    *product(SDK_CLIENTS, MAIN_AGENTS),
    *product(("python-0.3", "javascript-0.3", "python-1.x-rest", "javascript-1.x"), ("on-1.x-by-url", "on-0.3-configured")),
    *product(("python-0.3", "javascript-1.x-rest"), ("on-0.3-plain", "on-1.x-plain")),
    *product(("own",), ("own", "on-0.3", "on-1.x")),
)
"""Who calls whom: every official client every kind of agent. How the hub came to know an agent is its affair alone, so that a
client of each SDK is enough for those that are not announced. Where a worker streams or not is the hub's affair alone, so that
two of them are enough for the agents that do not; and this project's client speaks as 0.3 clients do.
"""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the output of the processes to the report of a failure."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        report.sections += [(process.name, process.tail()) for process in running]


@pytest.fixture(scope="package")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("interop")


@pytest.fixture(scope="package")
def hub(logs: Path) -> Iterator[HubProcess]:
    (logs / "rolecall.toml").touch()
    config = logs / "rolecall.toml"
    with start_hub(logs / "hub", worker_silence=3, push_allowed_cidrs="127.0.0.0/8", config=config) as process:
        yield process


@pytest.fixture(scope="package")
def role_url(hub: HubProcess, logs: Path) -> Iterator[RoleUrl]:
    """The base URL that an official client is given for a role; the role's agent starts when it is first needed."""
    with ExitStack() as started:
        up: set[str] = set()

        def url_of(role: str) -> str:
            if role not in up:
                up.add(role)
                _start_agent(started, role, hub, logs)
            return f"{hub.url}/agents/{role}/"

        yield url_of


def _start_agent(started: ExitStack, role: str, hub: HubProcess, logs: Path) -> None:
    if role == "own":
        started.enter_context(start_worker(HERE / "agents/own.py", "own:a", hub.url, log=logs / "own.log"))
        return
    sdk, script, *words = _AGENTS[role]
    address = f"http://127.0.0.1:{free_port()}"
    argv = [sdk_python(sdk), HERE / "agents" / script, address.rpartition(":")[2], *words]
    agent = started.enter_context(Process(argv, log=logs / f"{role}.log", name=role))
    if role.endswith("-configured"):
        (logs / "rolecall.toml").write_text(f'[[agents]]\nrole = "{role}"\ninstance = "a"\nurl = "{address}"\n')
        hub.signal(signal.SIGHUP)
        agent.wait_until(lambda: has_read_card(hub.url, f"{role}:a"))
    elif role.endswith("-by-url"):
        agent.wait_until(lambda: status_of(f"{address}/.well-known/agent-card.json") == 200)
        offer = {"url": address, "ttl_seconds": 3600}
        httpx.put(f"{hub.url}/registry/agents/{role}/a", json=offer, trust_env=False).raise_for_status()
        agent.wait_until(lambda: has_read_card(hub.url, f"{role}:a"))
    else:  # who announces it waits for it
        started.enter_context(start_announce(role, address, hub.url, log=logs / f"announce-{role}.log"))


@pytest.fixture(scope="package")
def client_named(logs: Path) -> Iterator[ClientNamed]:
    """A client by its name: the SDK, and the binding where it is not JSON-RPC. One process per SDK, when first asked for."""
    with ExitStack() as started:
        sdks: dict[str, SdkDriver] = {}

        def made(name: str) -> Client:
            if name == "own":
                return Client(name, OwnDriver(), dialect="0.3")
            sdk = name.removesuffix("-rest")
            if sdk not in sdks:
                sdks[sdk] = SdkDriver(_command_of(sdk), logs / f"{sdk}-client.log")
                started.callback(sdks[sdk].close)
            binding = "HTTP+JSON" if name.endswith("-rest") else "JSONRPC"
            missing_operations = ("push_list", "push_delete") if sdk == "python-0.3" else ()
            return Client(
                name, sdks[sdk], dialect="1.0" if "1.x" in sdk else "0.3", binding=binding, missing=missing_operations
            )

        yield made


def _command_of(sdk: str) -> list[str | Path]:
    language, _, version = sdk.partition("-")
    script = f"on_{version.replace('.', '_')}"
    if language == "python":
        return [sdk_python(version), HERE / f"clients/{script}.py"]
    if version == "1.x" and not _runs(node(), "Number(process.versions.node.split('.')[0]) >= 20"):
        missing("@a2a-js/sdk 1.x needs Node 20 or newer")
    return [node(), ROOT / f"tests/node/{script}.mjs"]


def _runs(program: Path, condition: str) -> bool:
    done = subprocess.run([program, "-e", f"process.exit({condition} ? 0 : 1)"], check=False, timeout=10)
    return done.returncode == 0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"client", "agent"} <= set(metafunc.fixturenames):
        metafunc.parametrize(("client", "agent"), PAIRS, indirect=True)


@pytest.fixture
def client(request: pytest.FixtureRequest, client_named: ClientNamed) -> Client:
    """With `agent`: each of PAIRS in turn."""
    return client_named(request.param)


@pytest.fixture
def agent(request: pytest.FixtureRequest, role_url: RoleUrl) -> str:
    """The base URL of its role."""
    return role_url(request.param)


@pytest.fixture(params=SDK_CLIENTS)
def sdk_client(request: pytest.FixtureRequest, client_named: ClientNamed) -> Client:
    """Each official client in turn, in each of its bindings."""
    return client_named(request.param)


@pytest.fixture(params=MAIN_AGENTS)
def main_agent(request: pytest.FixtureRequest, role_url: RoleUrl) -> str:
    """The base URL of each kind of agent in turn, without those that cannot stream."""
    return role_url(request.param)
