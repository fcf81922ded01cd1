"""Without tokens, a hub that other machines might reach does not start, or does not answer them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance import private_network
from tests.helpers.pages import blocks_of
from tests.helpers.processes import ROLECALL, ROOT, Process, environment, free_port, server_argv, status_of
from tests.helpers.tools import missing

COMMANDS = blocks_of("docs/howto/asgi-servers.md")
OTHERS = ("hypercorn", "uvicorn")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_exposed_hub_does_not_start(tmp_path: Path, host: str) -> None:
    hub = Process((*ROLECALL, "serve", "--host", host, "--port", "0"), log=tmp_path / "log", env=_data(tmp_path))
    assert hub.wait() == 2
    assert f"host {host} lets other machines call the hub, and there are no tokens. Make one: rolecall tokens new" in hub.output


@pytest.mark.parametrize("server", OTHERS)
def test_under_another_server_a_hub_that_was_not_told_its_host_does_not_start(tmp_path: Path, server: str) -> None:
    hub = Process(server_argv(server, free_port()), log=tmp_path / "log", env=_data(tmp_path))
    hub.wait()  # Hypercorn reports 0, whatever its worker ended with
    assert "the hub cannot know which address another server listens on, and there are no tokens. Make one: " in hub.output
    assert "set ROLECALL_HOST=127.0.0.1, and let the server listen there." in hub.output
    assert "Traceback" not in hub.output


@pytest.mark.parametrize("server", OTHERS)
def test_under_another_server_a_certificate_of_the_hubs_is_refused(tmp_path: Path, server: str) -> None:
    """Cards would name https addresses, and the server would speak plain http."""
    env = {**_data(tmp_path), "ROLECALL_HOST": "127.0.0.1", "ROLECALL_TLS_CERT": "cert.pem", "ROLECALL_TLS_KEY": "key.pem"}
    hub = Process(server_argv(server, free_port()), log=tmp_path / "log", env=env)
    hub.wait()
    assert "tls_cert and tls_key are for `rolecall serve`." in hub.output
    assert "Traceback" not in hub.output


@pytest.mark.parametrize("server", OTHERS)
def test_under_another_server_a_hub_on_all_addresses_answers_its_own_machine_alone(tmp_path: Path, server: str) -> None:
    enter = private_network.namespace_command()
    if enter is None:
        missing("this user may not make a network namespace (unshare -n)")
    command = [*enter, sys.executable, "-m", "tests.acceptance.private_network", str(tmp_path), server]
    done = subprocess.run(command, cwd=ROOT, env=environment({}), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert {status for status, _ in answers["127.0.0.1"].values()} == {200}
    for status, body in answers[private_network.OUTSIDE].values():
        assert status == 403
        assert "answers callers on its own machine only" in body


@pytest.mark.parametrize("server", OTHERS)
def test_cards_that_name_another_port_than_the_servers_are_told_of(tmp_path: Path, server: str) -> None:
    port = free_port()
    env = {**_data(tmp_path), "ROLECALL_HOST": "127.0.0.1", "ROLECALL_PORT": "1"}
    with Process(server_argv(server, port), log=tmp_path / "log", env=env) as hub:
        hub.wait_until(lambda: status_of(f"http://127.0.0.1:{port}/livez") == 200)
        assert hub.output.count("cards name another port than the server's: set ROLECALL_PUBLIC_URL or ROLECALL_PORT") == 1


@pytest.mark.parametrize("server", OTHERS)
def test_the_commands_of_the_page_start_a_hub(tmp_path: Path, server: str) -> None:
    port = free_port()
    text = COMMANDS[server].replace("8420", str(port)).replace(f"\n{server}", f"\nexec {server}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with Process(["bash", "-euc", text], log=tmp_path / "log", env={**_data(tmp_path), "PATH": path}) as hub:
        hub.wait_until(lambda: status_of(f"http://127.0.0.1:{port}/readyz") == 200)
        assert "cards name another port" not in hub.output
        hub.stop(20)


def _data(folder: Path) -> dict[str, str]:
    return {"ROLECALL_DATA_DIR": str(folder)}
