"""The worker, what stands in front of it, and the load."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench import machine
from tests.bench.figures import Case
from tests.bench.machine import Cores

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
AGENT_PYTHON = ROOT / ".tools" / "a2a-1.x" / "bin" / "python"
HUB_PYTHON = ROOT / ".venv" / "bin" / "python"
_PAGE = 100
_NGINX = """\
worker_processes 1;
daemon off;
{user}pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 100000000;
  upstream worker {{ server 127.0.0.1:{worker}; keepalive 2048; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=2048;
    location / {{
      proxy_pass http://worker;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


class Missing(Exception):
    """A tool that the benchmark needs is not there."""


def missing_tools() -> list[str]:
    tools = {"a C compiler": _compiler(), "nginx": _nginx(), str(AGENT_PYTHON.relative_to(ROOT)): AGENT_PYTHON.exists()}
    return [name for name, found in tools.items() if not found]


@dataclass(frozen=True, slots=True)
class Proxy:
    """What is measured: where it is called, and whose CPU time counts."""

    name: str
    pid: int
    port: int
    path: str


@dataclass
class Rig:
    """Everything in place. Use as a context manager; nothing of it is left running."""

    folder: Path
    cores: Cores
    closing: ExitStack = field(default_factory=ExitStack)
    worker_port: int = 0
    proxies: list[Proxy] = field(default_factory=list)

    def __enter__(self) -> Rig:
        missing = missing_tools()
        if missing:
            raise Missing(f"Not there: {', '.join(missing)}. Run scripts/install-bench-tools.")
        with ExitStack() as closing:
            self.closing = closing
            for program in ("worker", "load"):
                compile_c(program, self.folder)
            self.worker_port = self._start_worker()
            self.proxies = [self._start_nginx(), self._start_agent(), self._start_hub()]
            self.closing = closing.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.close()

    # --- while it runs

    def plan(self, events: int, interval_us: int) -> None:
        get(self.worker_port, f"/plan?events={events}&interval_us={interval_us}")

    def served(self) -> tuple[int, int]:
        count = get(self.worker_port, "/count")
        return count["calls"], count["events"]

    def load(self, proxy: Proxy, case: Case) -> dict[str, Any]:
        """Call, and say what came of it. `cpu` is what the proxy used while the load measured."""
        call = [proxy.port, proxy.path, case.method, case.connections, int(case.seconds * 1000), case.events]
        argv = [str(part) for part in (self.folder / "load", *call)]
        with ExitStack() as closing, (self.folder / "load.err").open("w") as log:
            process = machine.start(argv, core=self.cores.rig, log=log, closing=closing)
            machine.expect(process, "warm")
            cpu = machine.cpu_seconds(proxy.pid)
            machine.expect(process, "over")
            cpu = machine.cpu_seconds(proxy.pid) - cpu
            answer: dict[str, Any] = json.loads(machine.first_line(process))
        return {**answer, "cpu": cpu}

    # --- the parts

    def _start_worker(self) -> int:
        log = self._log("worker")
        process = machine.start(
            [self.folder / "worker"], core=self.cores.rig, log=log, closing=self.closing, stdin=subprocess.PIPE
        )
        return int(machine.first_line(process))

    def _start_nginx(self) -> Proxy:
        port = _free_port()
        user = "user root;\n" if os.geteuid() == 0 else ""
        conf = self.folder / "nginx.conf"
        conf.write_text(_NGINX.format(user=user, folder=self.folder, worker=self.worker_port, port=port))
        argv: list[str | Path] = [_nginx() or "nginx", "-c", conf, "-e", self.folder / "nginx.log"]
        process = machine.start(argv, core=self.cores.measured, log=self._log("nginx"), closing=self.closing)
        _until_answering(port)
        return Proxy("nginx", process.pid, port, "/")

    def _start_agent(self) -> Proxy:
        argv: list[str | Path] = [AGENT_PYTHON, HERE / "agent.py", f"http://127.0.0.1:{self.worker_port}/"]
        process = machine.start(argv, core=self.cores.measured, log=self._log("agent"), closing=self.closing)
        port = int(machine.first_line(process).rstrip("/").rpartition(":")[2])
        _until_answering(port)
        return Proxy("agent", process.pid, port, "/")

    def _start_hub(self) -> Proxy:
        """As users run it, with all its defaults; only where it listens and keeps its data is ours."""
        port = _free_port()
        argv: list[str | Path] = [HUB_PYTHON, "-m", "hub.cli", "serve", "--port", str(port), "--data-dir", self.folder / "data"]
        process = machine.start(argv, core=self.cores.measured, log=self._log("hub"), closing=self.closing, cwd=ROOT)
        _until_answering(port)
        card = get(self.worker_port, "/.well-known/agent-card.json")
        offer = {"url": f"http://127.0.0.1:{self.worker_port}/", "boot": "bench", "ttl_seconds": 86400, "card": card}
        put(port, "/registry/agents/bench/a", offer)
        return Proxy("hub", process.pid, port, "/agents/bench/")

    def _log(self, name: str) -> Any:
        return self.closing.enter_context((self.folder / f"{name}.err").open("w"))


class StoredTasks:
    """The hub's own word on what it has stored, asked over HTTP as anybody would."""

    def __init__(self, hub: Proxy) -> None:
        self._hub = hub

    def total(self) -> int:
        total: int = get(self._hub.port, "/registry/tasks?limit=1")["total"]
        return total

    def newest(self) -> list[dict[str, Any]]:
        page: list[dict[str, Any]] = get(self._hub.port, f"/registry/tasks?limit={_PAGE}")["tasks"]
        return page

    def fetch(self, task: str) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": task}}
        answer = _ask(self._hub.port, self._hub.path, "POST", body)
        found: dict[str, Any] = answer.get("result") or {"error": answer.get("error")}
        return found


def compile_c(program: str, folder: Path) -> None:
    source = HERE / "c" / f"{program}.c"
    subprocess.run([_compiler() or "cc", "-O2", "-o", str(folder / program), str(source)], check=True)


def get(port: int, path: str) -> Any:
    return _ask(port, path, "GET", None)


def put(port: int, path: str, document: Any) -> Any:
    return _ask(port, path, "PUT", document)


def _ask(port: int, path: str, method: str, document: Any) -> Any:
    data = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data=data, method=method, headers={"content-type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as answer:
        return json.loads(answer.read())


def _until_answering(port: int, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            get(port, "/.well-known/agent-card.json")
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"Nothing answers on port {port}: {error}. See the logs.") from error
            time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def _nginx() -> str | None:
    """Where it is usually kept out of a normal user's path."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
