"""One hub and three agents for all of these tests, and every client that plays through them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.helpers.processes import ROOT, HubProcess, free_port, running, start_announce, start_hub, start_script, start_worker
from tests.helpers.tools import node, sdk_python
from tests.interop.driven import Client, DrivenClient, OwnClient

HERE = Path(__file__).parent
AGENTS = ("own", "stock", "stock-plain")
"""Roles: this project's worker; an agent on a2a-sdk 0.3; the same without streaming."""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failure shows what the processes have said."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        report.sections += [(process.name, process.tail()) for process in running]


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("interop")


@pytest.fixture(scope="session")
def hub(logs: Path) -> Iterator[HubProcess]:
    with start_hub(logs / "hub", worker_silence=3) as process:
        yield process


@pytest.fixture(scope="session")
def role_url(hub: HubProcess, logs: Path) -> Iterator[Callable[[str], str]]:
    """The base URL that an official client is given for a role; the role's agent is started when it is first asked for."""
    with ExitStack() as started:
        up: set[str] = set()

        def url_of(role: str) -> str:
            if role not in up:
                up.add(role)
                _start_agent(started, role, hub.url, logs)
            return f"{hub.url}/agents/{role}/"

        yield url_of


def _start_agent(started: ExitStack, role: str, hub_url: str, logs: Path) -> None:
    if role == "own":
        started.enter_context(start_worker(HERE / "agents/own.py", "own:a", hub_url, log=logs / "own.log"))
        return
    port = free_port()
    argv = [sdk_python("0.3"), HERE / "agents/stock.py", str(port), *(["no-streaming"] if role == "stock-plain" else [])]
    address = f"http://127.0.0.1:{port}"
    card = f"{address}/.well-known/agent-card.json"
    started.enter_context(start_script(argv, log=logs / f"{role}.log", ready_url=card, name=role))
    started.enter_context(start_announce(role, address, hub_url, log=logs / f"announce-{role}.log"))


@pytest.fixture(scope="session")
def python_client(logs: Path) -> Iterator[Client]:
    yield from _driven([sdk_python("0.3"), HERE / "clients/stock.py"], logs / "python-client.log")


@pytest.fixture(scope="session")
def javascript_client(logs: Path) -> Iterator[Client]:
    yield from _driven([node(), ROOT / "tests/node/stock.mjs"], logs / "javascript-client.log")


@pytest.fixture(scope="session")
def own_client() -> Client:
    return OwnClient()


@pytest.fixture(params=["python", "javascript"])
def official(request: pytest.FixtureRequest) -> Client:
    """Each official client in turn."""
    client: Client = request.getfixturevalue(f"{request.param}_client")
    return client


@pytest.fixture(params=["python", "javascript", "own"])
def client(request: pytest.FixtureRequest) -> Client:
    """Each client in turn, this project's too."""
    chosen: Client = request.getfixturevalue(f"{request.param}_client")
    return chosen


@pytest.fixture(params=AGENTS)
def agent(request: pytest.FixtureRequest, role_url: Callable[[str], str]) -> str:
    """The base URL of each agent's role in turn."""
    return role_url(request.param)


def _driven(argv: list[str | Path], log: Path) -> Iterator[Client]:
    client = DrivenClient(argv, log)
    try:
        yield client
    finally:
        client.close()
