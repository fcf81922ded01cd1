"""docs/howto/behind-nginx-or-caddy.md: its configurations run in a real nginx and a real Caddy, before a real hub."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.nginx import nginx_before, plain, refusal_of
from tests.helpers.certificates import new_authority
from tests.helpers.client import text_message
from tests.helpers.pages import Shell, blocks_of
from tests.helpers.processes import Process, free_port, is_live, start_hub, status_of, wait_for
from tests.helpers.tools import missing

BLOCKS = blocks_of("docs/howto/behind-nginx-or-caddy.md")
NAME = "agents.example.com"
MIB = 1024 * 1024
LIMIT = 17
"""MiB of a message, for nginx."""

SLOW_WORKER = """
import asyncio
from pathlib import Path
from rolecall import Worker

worker = Worker("slow")


@worker.on_message
async def say(text: str):
    yield "first"
    while not Path("enough").exists():
        await asyncio.sleep(0.02)
    yield "last"


worker.run()
"""


@dataclass
class Reached:
    """A hub with a token, reached through `url`."""

    url: str
    token: str
    folder: Path

    @property
    def headers(self) -> dict[str, str]:
        return {"Host": NAME, "X-API-Key": self.token}

    def ask(self, method: str, path: str, headers: Mapping[str, str] | None = None, **content: Any) -> httpx.Response:
        shown = {**self.headers, **(headers or {})}
        return httpx.request(method, f"{self.url}{path}", headers=shown, trust_env=False, timeout=60, **content)

    def offset(self, path: str) -> int:
        return int(self.ask("HEAD", path).headers["upload-offset"])


@contextmanager
def _other_before(folder: Path, hub_port: int) -> Iterator[str]:
    """The URL of a Caddy with the block of the page, over plain http: it can get no certificate for the name here."""
    program, port = shutil.which("caddy"), free_port()
    if program is None:
        missing("Caddy is not installed: scripts/install-test-tools installs it")
    folder.mkdir()
    site = BLOCKS["caddyfile"].replace(NAME, f"http://:{port}").replace("127.0.0.1:8420", f"127.0.0.1:{hub_port}")
    (folder / "Caddyfile").write_text(f"{{\n\tadmin off\n\tdefault_bind 127.0.0.1\n}}\n{site}")
    argv = [program, "run", "--config", folder / "Caddyfile", "--adapter", "caddyfile"]
    with Process(argv, log=folder / "log", env={"HOME": str(folder), "XDG_DATA_HOME": str(folder)}) as process:
        process.wait_until(lambda: status_of(f"http://127.0.0.1:{port}/livez") != 0)
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _before(proxy: str, folder: Path, hub_port: int) -> Iterator[str]:
    opened = _other_before(folder, hub_port) if proxy == "caddy" else nginx_before(folder, plain(BLOCKS["server"]), hub_port)
    with opened as url:
        yield url


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def reached(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reached]:
    """The hub as the page starts it."""
    folder, port = tmp_path_factory.mktemp("reached"), free_port()
    shell = Shell(folder)
    shell.env |= {"ROLECALL_PORT": str(port)}
    *setup, serve = BLOCKS["hub"].strip().splitlines()
    assert serve == "rolecall serve"
    done = shell.run("\n".join(setup))
    assert done.returncode == 0, done.stderr
    assert (folder / "me.token").stat().st_mode & 0o077 == 0
    (line,) = [found for found in setup if found.startswith("export ")]
    key, _, value = line.removeprefix("export ").partition("=")
    token = (folder / "me.token").read_text().strip()
    with ExitStack() as started:
        hub = started.enter_context(shell.process(serve, "hub.log", **{key: value}))
        hub.wait_until(lambda: status_of(f"http://127.0.0.1:{port}/readyz") == 200)
        (folder / "slow.py").write_text(SLOW_WORKER)
        env = {"ROLECALL_TOKEN": token, "ROLECALL_HUB": f"http://127.0.0.1:{port}", "ROLECALL_INSTANCE": "a"}
        worker = Process((sys.executable, "slow.py"), log=folder / "worker.log", env=env, cwd=folder)
        started.enter_context(worker).wait_until(lambda: is_live(f"http://127.0.0.1:{port}", "slow:a", token))
        url = started.enter_context(_before(request.param, folder / "proxy", port))
        yield Reached(url, token, folder)


def test_nginx_takes_the_whole_block_with_its_certificate(tmp_path: Path) -> None:
    certificate = new_authority(tmp_path).certificate(NAME)
    assert refusal_of(tmp_path / "nginx", BLOCKS["server"], certificate) == ""
    assert "unknown directive" in refusal_of(tmp_path / "wrong", BLOCKS["server"].replace("proxy_pass", "pass"), certificate)


def test_a_caller_with_a_token_is_answered_and_one_without_is_not(reached: Reached) -> None:
    assert reached.ask("GET", "/agents").status_code == 200
    assert httpx.get(f"{reached.url}/agents", headers={"Host": NAME}, trust_env=False).status_code == 401
    assert reached.ask("GET", "/.well-known/agent-card.json").json()["url"].startswith(f"https://{NAME}/")


def test_doctor_finds_calls_and_streams_in_order(reached: Reached) -> None:
    done = Shell(reached.folder).run(BLOCKS["check"].replace(f"https://{NAME}", reached.url))
    assert done.returncode == 0, done.stdout
    assert "unbuffered" in done.stdout


def test_a_stream_arrives_while_it_is_made(reached: Reached) -> None:
    """The worker says one word, and the next only when the first has come."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": text_message("say")}
    address = f"{reached.url}/agents/slow/"
    with httpx.stream("POST", address, json=body, headers=reached.headers, trust_env=False, timeout=8) as answer:
        lines = answer.iter_lines()
        while "first" not in next(lines):
            pass
        (reached.folder / "enough").touch()
        assert '"completed"' in "".join(lines)


def test_a_message_of_16_mib_and_a_larger_file_pass(reached: Reached) -> None:
    content = os.urandom(MIB) * 20
    made = reached.ask("POST", "/registry/files?name=a.bin", content=content)
    assert made.status_code == 201, made.text
    item = made.json()
    assert item["url"] == f"https://{NAME}/registry/files/{item['id']}"
    assert reached.ask("GET", f"/registry/files/{item['id']}").content == content
    text = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": text_message("x" * 15 * MIB)}
    assert "error" in reached.ask("POST", "/agents/nobody/", json=text).json()  # the hub's own answer, not a 413 of the proxy


def test_a_message_beyond_the_limit_is_refused(reached: Reached) -> None:
    answer = reached.ask("POST", "/", {"Content-Type": "application/json"}, content=b"x" * (LIMIT * MIB + 1))
    assert answer.status_code == 413, answer.text


def test_what_came_of_an_upload_before_a_cut_stays(reached: Reached) -> None:
    made = reached.ask("POST", "/registry/files?name=b.bin", {"Upload-Length": str(4 * MIB)})
    path = f"/registry/files/{made.json()['id']}"
    head = {**reached.headers, "Upload-Offset": "0", "Content-Length": str(4 * MIB)}
    lines = [f"PATCH {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    with socket.create_connection(("127.0.0.1", int(reached.url.rpartition(":")[2])), timeout=30) as upload:
        upload.sendall("\r\n".join(lines).encode() + b"x" * MIB)
        wait_for(lambda: reached.offset(path) == MIB, 30, poll=0.2)  # it is kept when nothing has come for ten seconds
    rest = reached.ask("PATCH", path, {"Upload-Offset": str(MIB)}, content=b"y" * 3 * MIB)
    assert (rest.status_code, rest.json()["complete"]) == (200, True), rest.text


@pytest.mark.parametrize("proxy", ["nginx", "caddy"])
def test_behind_the_proxies_of_the_page_a_hub_without_tokens_answers_nobody(tmp_path: Path, proxy: str) -> None:
    with start_hub(tmp_path / "hub") as hub, _before(proxy, tmp_path / "proxy", hub.port) as url:
        assert [status_of(f"{url}{path}") for path in ("/agents", "/registry/files/a", "/livez")] == [403, 403, 200]
        assert status_of(f"{hub.url}/agents") == 200
