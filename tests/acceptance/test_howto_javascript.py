"""docs/howto/javascript.md: its clients, its page and its agent run as they are, with both versions of the official SDK."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from hub.identity.tokens import FILE_NAME, new
from rolecall.model.principal import Kind, Principal
from tests.helpers.pages import blocks_of
from tests.helpers.processes import (
    ROOT,
    HubProcess,
    Process,
    environment,
    free_port,
    has_read_card,
    is_live,
    start_hub,
    wait_for,
)
from tests.helpers.tools import node

BLOCKS = blocks_of("docs/howto/javascript.md")
CLIENTS = {"1.x": BLOCKS["client-1-x"], "0.3": BLOCKS["client-0-3"], "fetch": BLOCKS["fetch"]}
MODULES = ROOT / "tests/node/node_modules"
PACKAGES = {"1.x": "a2a-js-1x", "0.3": "@a2a-js/sdk"}
ORIGIN = "http://localhost:5173"
COUNTED = "1 2 3 4 5 6 7 8 9 \n"


class KilledHub:
    """A hub with tokens and one listed origin, which can be killed and started again. `counter` counts at it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        holders = Principal("anna", Kind.CLIENT), Principal("farm", Kind.WORKER, roles=("*",))
        folder.joinpath("hub").mkdir()
        self.caller, self.worker = (new(folder / "hub" / FILE_NAME, holder, lasts=None, now=0.0)[0] for holder in holders)
        self.process = self._start(free_port())
        env = {**self.env(self.worker), "ROLECALL_INSTANCE": "a"}
        counter = (sys.executable, ROOT / "examples/02_stream/counter.py")
        self._stack.enter_context(Process(counter, log=folder / "counter.log", env=env))
        wait_for(lambda: is_live(self.url, "counter:a", self.caller))

    def _start(self, port: int) -> HubProcess:
        self.url = f"http://127.0.0.1:{port}"
        return self._stack.enter_context(start_hub(self.folder / "hub", port=port, allowed_origins=ORIGIN))

    def start_again(self) -> None:
        self.process = self._start(self.process.port)

    def env(self, token: str) -> dict[str, str]:
        return {"ROLECALL_HUB": self.url, "ROLECALL_TOKEN": token}


class Client:
    """A client of the page in a folder of its own, with the SDK of that version, if it is one."""

    def __init__(self, hub: KilledHub, folder: Path, kind: str) -> None:
        self._hub = hub
        self.folder = folder / kind
        self.folder.mkdir()
        if kind in PACKAGES:
            (self.folder / "node_modules/@a2a-js").mkdir(parents=True)
            (self.folder / "node_modules/@a2a-js/sdk").symlink_to(MODULES / PACKAGES[kind])
            (self.folder / "node_modules/express").symlink_to(MODULES / "express")
        self.write("hub", CLIENTS[kind])
        for name in ("call", "list", "follow", "resume", "answer", "agent", "fetched"):
            self.write(name, BLOCKS[name])
        with_token = f'url: "{hub.url}", token: "{hub.caller}"'
        (self.folder / "page.html").write_text(BLOCKS["page"].replace('url: "http://127.0.0.1:8420"', with_token))

    def write(self, name: str, text: str) -> None:
        (self.folder / f"{name}.mjs").write_text(text)

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [node(), *words],
            cwd=self.folder,
            env=environment({**self._hub.env(self._hub.caller), "PATH": os.environ["PATH"]}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def resume(self) -> subprocess.Popen[str]:
        """The program, or the page, that goes on where it was."""
        has_sdk = (self.folder / "node_modules").exists()
        return self.start(*(("resume.mjs",) if has_sdk else (ROOT / "tests/node/browser.mjs", "page.html", ORIGIN)))

    def kept(self) -> str:
        """What the program, or the page, has stored of the answer."""
        for name in ("kept.json", "storage.json"):
            if (self.folder / name).exists():
                return (self.folder / name).read_text().replace('\\"', '"').rpartition('"text":"')[2]
        return ""


@contextmanager
def proxy_without_a_hub(port: int) -> Iterator[set[object]]:
    """Answers 502. Gives the kinds of clients that have asked it, which differ by the version of the extension's header."""
    asked: set[object] = set()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.add((self.headers["A2A-Extensions"], self.headers["X-A2A-Extensions"]))
            self.send_response(502)
            self.end_headers()

        do_POST = do_OPTIONS = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="proxy without a hub")
        thread.start()
        try:
            yield asked
        finally:
            server.shutdown()
            thread.join(5)


def output_of(programs: Sequence[subprocess.Popen[str]]) -> list[str]:
    """What they print, each to its end."""
    try:
        return [program.communicate(timeout=30)[0] for program in programs]
    finally:
        for program in programs:
            program.kill()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KilledHub]:
    node()
    with ExitStack() as stack:
        yield KilledHub(tmp_path_factory.mktemp("javascript"), stack)


def test_the_clients_print_what_the_page_says(hub: KilledHub, tmp_path: Path) -> None:
    newest, oldest, plain = (Client(hub, tmp_path, kind) for kind in CLIENTS)
    started = [newest.start("call.mjs"), oldest.start("call.mjs"), plain.start("fetched.mjs"), newest.start("list.mjs")]
    *printed, count = output_of(started)
    assert printed == [BLOCKS["printed"], BLOCKS["printed"], BLOCKS["answers"]]
    assert count.strip().isdigit()


def test_the_agent_is_announced_and_answers_clients_of_both_versions(hub: KilledHub, tmp_path: Path) -> None:
    newest, oldest = (Client(hub, tmp_path, kind) for kind in PACKAGES)
    port = free_port()
    argv = (node(), newest.folder / "agent.mjs")
    announce = BLOCKS["announce"].replace("8751", str(port)).split()
    env = {**hub.env(hub.worker), "ROLECALL_INSTANCE": "a"}
    with (
        Process(argv, log=tmp_path / "agent.log", env={"PORT": str(port)}),
        Process([Path(sys.executable).with_name(announce[0]), *announce[1:]], log=tmp_path / "announce.log", env=env) as lease,
    ):
        lease.wait_until(lambda: has_read_card(hub.url, "teller:a", hub.caller))
        assert output_of([client.start("answer.mjs") for client in (newest, oldest)]) == [BLOCKS["answered"]] * 2
        headers = {"A2A-Version": "1.0", "X-API-Key": hub.caller}
        with httpx.Client(base_url=f"{hub.url}/agents/teller", headers=headers, trust_env=False) as http:
            for words, state in (("on and on " * 50, "WORKING"), ("once", "INPUT_REQUIRED")):
                asks = {"messageId": state, "role": "ROLE_USER", "parts": [{"text": words}]}
                waits = {"returnImmediately": state == "WORKING"}
                task = http.post("/message:send", json={"message": asks, "configuration": waits}).json()["task"]
                assert task["status"]["state"] == f"TASK_STATE_{state}"
                canceled = http.post(f"/tasks/{task['id']}:cancel").json()
                assert canceled["status"]["state"] == "TASK_STATE_CANCELED"


@pytest.fixture
def clients(hub: KilledHub, tmp_path: Path) -> Sequence[Client]:
    return [Client(hub, tmp_path, kind) for kind in CLIENTS]


def begun(clients: Sequence[Client]) -> Sequence[subprocess.Popen[str]]:
    """Each of them has a part of its answer."""
    programs = [client.resume() for client in clients]
    wait_for(lambda: all(client.kept().startswith("1 2 ") for client in clients))
    return programs


def test_streams_go_on_after_the_hub_was_killed(hub: KilledHub, clients: Sequence[Client]) -> None:
    programs = begun(clients)
    hub.process.kill9()
    hub.start_again()
    assert output_of(programs) == [COUNTED] * 3


def test_programs_that_were_killed_go_on_where_they_were(hub: KilledHub, clients: Sequence[Client]) -> None:
    programs = begun(clients)
    for program in programs:
        program.kill()
    assert [output for output in output_of(programs) if COUNTED in output] == []
    hub.process.kill9()
    with proxy_without_a_hub(hub.process.port) as asked:
        programs = [client.resume() for client in clients]
        wait_for(lambda: len(asked) == len(clients))
    hub.start_again()
    assert output_of(programs) == [COUNTED] * 3
    assert output_of([client.resume() for client in clients]) == [COUNTED] * 3, "the last event was there already"
