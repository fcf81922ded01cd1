"""Agents that never enrol, in the file of a real hub: it holds their leases while they answer."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.test_cards_by_url import AGENT, CARD
from tests.helpers.client import call, text_message
from tests.helpers.pages import Shell, blocks_of
from tests.helpers.processes import HubProcess, Process, free_port, is_live, start_hub, wait_for

NAMED_HUB = (sys.executable, "-m", "tests.acceptance.two_addresses")


@pytest.fixture
def card(tmp_path: Path) -> Path:
    file = tmp_path / "card.json"
    file.write_text(json.dumps(CARD))
    return file


def write(file: Path, *agents: str) -> None:
    file.write_text("\n".join(["lease_ttl = 6", *(f"[[agents]]\n{agent}" for agent in agents)]))


def start_agent(card: Path, port: int, host: str = "127.0.0.1", token: str = "") -> Process:
    log = card.with_name(f"{host}-{port}.log")
    return Process([sys.executable, AGENT, host, str(port), card, *([token] if token else [])], log=log)


def asked(hub: HubProcess, role: str) -> str:
    task = call(f"{hub.url}/agents/{role}/", "message/send", text_message("hello"))["result"]
    return str(task["artifacts"][0]["parts"][0]["text"])


def shown(hub: HubProcess, name: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{hub.url}/registry/agents/{name}", trust_env=False).json()
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rolecall.toml"


def _all_live(url: str, names: set[str]) -> bool:
    return all(is_live(url, name) for name in names)


def serve(file: Path, argv: tuple[str, ...] = ()) -> HubProcess:
    return start_hub(file.with_name("hub"), argv=argv, config=file)


def test_a_configured_agent_is_live_while_it_runs_and_back_when_it_runs_again(tmp_path: Path, file: Path, card: Path) -> None:
    port = free_port()
    (tmp_path / "key").write_text("s3cret")
    write(
        file,
        f'role = "parrot"\ninstance = "p"\nurl = "http://127.0.0.1:{port}"\ncredential_file = "{tmp_path}/key"\n'
        'labels = {zone = "a"}',
    )
    with serve(file) as hub:
        assert not is_live(hub.url, "parrot:p")
        with start_agent(card, port, token="s3cret") as agent:
            wait_for(lambda: is_live(hub.url, "parrot:p"))
            found = shown(hub, "parrot:p")
            assert (found["description"], found["labels"]) == ("Says it again.", {"zone": "a"})
            assert found["card_read"]["at"]
            assert asked(hub, "parrot") == "echo: hello"
            taken = httpx.put(f"{hub.url}/registry/agents/parrot/p", json={"url": f"http://127.0.0.1:{port}"}, trust_env=False)
            assert (taken.status_code, taken.json()["reason"]) == (409, "CONFLICT")
            agent.kill9()
            began = time.monotonic()
            wait_for(lambda: not is_live(hub.url, "parrot:p"))
            assert time.monotonic() - began < 3, "long before the ttl"
        (tmp_path / "key").write_text("n3w")
        with start_agent(card, port, token="n3w"):
            wait_for(lambda: is_live(hub.url, "parrot:p"))
            wait_for(lambda: "result" in call(f"{hub.url}/agents/parrot/", "message/send", text_message("hello")))
            assert asked(hub, "parrot") == "echo: hello"
            hub.kill9()
            with serve(file) as again:
                assert asked(again, "parrot") == "echo: hello"


def test_the_commands_of_the_page_hold_the_agents_of_its_file(tmp_path: Path, card: Path) -> None:
    page, shell, port = blocks_of("docs/howto/agents-that-do-not-enrol.md"), Shell(tmp_path), free_port()
    planner, coder = free_port(), free_port()
    shell.env |= {"ROLECALL_PORT": str(port), "ROLECALL_HUB": f"http://127.0.0.1:{port}"}
    (tmp_path / "key").write_text("s3cret")
    text = page["file"].replace("planner.internal:9000", f"127.0.0.1:{planner}").replace("/run/secrets/coder", "key")
    (tmp_path / "rolecall.toml").write_text(text.replace("https://agents.example.com/coder", f"http://127.0.0.1:{coder}"))
    validate, start, listed = page["start"].splitlines()
    with start_agent(card, planner), start_agent(card, coder, token="s3cret"):
        validated = shell.run(validate)
        assert validated.returncode == 0, validated.stderr
        with shell.process(start, "hub.log") as hub:
            names = {"coder:example", f"planner:127.0.0.1-{planner}"}
            hub.wait_until(partial(_all_live, shell.env["ROLECALL_HUB"], names))
            assert {":".join(row.split()[:2]) for row in shell.run(listed).stdout.splitlines()[1:]} == names


def test_sighup_reads_the_agents_again_and_nothing_else(file: Path, card: Path) -> None:
    one, two = free_port(), free_port()
    first, second = (f'role = "parrot"\nurl = "http://127.0.0.1:{port}"' for port in (one, two))
    write(file, first)
    with start_agent(card, one), start_agent(card, two), serve(file) as hub:
        wait_for(lambda: is_live(hub.url, f"parrot:127.0.0.1-{one}"))
        write(file, first, second)
        hub.signal(signal.SIGHUP)
        wait_for(lambda: is_live(hub.url, f"parrot:127.0.0.1-{two}"))
        assert is_live(hub.url, f"parrot:127.0.0.1-{one}")
        file.write_text("[[agents]")
        hub.signal(signal.SIGHUP)
        wait_for(lambda: "not valid TOML" in hub.output)
        write(file, first, 'role = "parrot"\nurl = "http://169.254.169.254"')
        hub.signal(signal.SIGHUP)
        wait_for(lambda: "not allowed by policy" in hub.output)
        assert is_live(hub.url, f"parrot:127.0.0.1-{two}") and is_live(hub.url, f"parrot:127.0.0.1-{one}")
        file.write_text(f"lease_ttl = 1\nport = 1\nwild = 2\n[[agents]]\n{second}")
        hub.signal(signal.SIGHUP)
        wait_for(lambda: not is_live(hub.url, f"parrot:127.0.0.1-{one}"))
        assert shown(hub, f"parrot:127.0.0.1-{two}")["expires_in"] > 2


@pytest.fixture
def named_hub(file: Path, card: Path) -> Iterator[tuple[HubProcess, int]]:
    port = free_port()
    write(file, f'role = "parrot"\nurl = "http://agents.test:{port}"')
    with serve(file, NAMED_HUB) as hub:
        yield hub, port


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere loopback has one address")
def test_a_name_with_two_addresses_is_two_agents_that_are_called_by_that_name(
    named_hub: tuple[HubProcess, int], card: Path
) -> None:
    hub, port = named_hub
    with start_agent(card, port) as first, start_agent(card, port, "127.0.0.2") as second:
        for address in ("127.0.0.1", "127.0.0.2"):
            wait_for(lambda name=f"parrot:{address}-{port}": is_live(hub.url, name))
        for process, address in ((first, "127.0.0.1"), (second, "127.0.0.2")):
            pinned = {**text_message("hello"), "metadata": {"role": f"parrot:{address}-{port}"}}
            assert call(f"{hub.url}/a2a", "message/send", pinned)["result"]["status"]["state"] == "completed"
            assert [line for line in process.output.splitlines() if line.startswith("POST")] == [
                f"POST / agents.test:{port} 200"
            ]
        first.kill9()
        wait_for(lambda: not is_live(hub.url, f"parrot:127.0.0.1-{port}"))
        assert asked(hub, "parrot") == "echo: hello"
