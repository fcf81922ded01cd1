"""The measured proxies. Each forwards to the worker, and is started as its users start it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.bench import machine
from tests.bench.asking import ask, free_port, until_answering
from tests.bench.checkouts import CURRENT, ROOT, Checkout
from tests.bench.machine import RestRoute
from tests.helpers.tools import find_nginx

HERE = Path(__file__).parent
HUB_ON_HYPERCORN = "hub-hypercorn"
FLOOR = "floor"
"""The bare durable relay of floor.py."""
FLOOR_FILE = "floor.db"
_ON_HYPERCORN = ("--workers", "0", "--worker-class", "uvloop", "--log-level", "warning")
"""In one process, whose CPU time counts."""
AGENT_EXECUTABLE = ROOT / ".tools" / "a2a-1.x" / "bin" / "python"
OLD_AGENT_EXECUTABLE = ROOT / ".tools" / "a2a-0.3" / "bin" / "python"
# One caller sends everything, more than the default rate limit allows; its calls are still counted. The benchmark sends no
# heartbeats, so leases are longer than the run; they are still swept.
CHANGED = {"ROLECALL_MAX_RATE": "1000000", "ROLECALL_LEASE_TTL": "7200", "ROLECALL_HEARTBEAT": "3600"}
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


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy's port, and the process whose CPU time counts. The tokens are a hub's: one for calls, some for enrolments."""

    name: str
    pid: int
    port: int
    ready_after: float = 0.0
    calls_with: str = ""
    enrol_with: tuple[str, ...] = ()
    data: Path = Path()
    checkout: Checkout = CURRENT

    @property
    def is_hub(self) -> bool:
        return bool(self.calls_with)

    def path(self, role: str) -> str:
        return f"/agents/{role}/" if self.is_hub else "/"


def start_nginx(place: RestRoute, worker: int) -> Proxy:
    port = free_port()
    user = "user root;\n" if os.geteuid() == 0 else ""
    config, log = place.folder / "nginx.conf", place.folder / "nginx.log"
    config.write_text(_NGINX.format(user=user, folder=place.folder, worker=worker, port=port))
    process = place.start([find_nginx() or "nginx", "-c", config, "-e", log], log="nginx")
    until_answering(port)
    return Proxy("nginx", process.pid, port, machine.age(process.pid))


def start_floor(place: RestRoute, worker: int) -> Proxy:
    data = Path(tempfile.mkdtemp(dir=place.folder))
    argv = [sys.executable, "-m", "tests.bench.floor", str(worker), data / FLOOR_FILE]
    process = place.start(argv, log=FLOOR, cwd=ROOT, env=CURRENT.environment({}))
    port = int(machine.first_line(process))
    until_answering(port)
    return Proxy(FLOOR, process.pid, port, machine.age(process.pid), data=data)


def start_agent(place: RestRoute, worker: int) -> Proxy:
    return _start_agent(place, worker, "sdk-1.3", AGENT_EXECUTABLE, HERE / "agent.py")


def start_old_agent(place: RestRoute, worker: int) -> Proxy:
    return _start_agent(place, worker, "sdk-0.3", OLD_AGENT_EXECUTABLE, HERE / "agent03.py")


def _start_agent(place: RestRoute, worker: int, name: str, python: Path, program: Path) -> Proxy:
    process = place.start([python, program, f"http://127.0.0.1:{worker}/"], log=name)
    port = int(machine.first_line(process).rstrip("/").rpartition(":")[2])
    until_answering(port)
    return Proxy(name, process.pid, port, machine.age(process.pid))


def start_hub(
    place: RestRoute, worker: int, name: str = "hub", more: Mapping[str, str] | None = None, checkout: Checkout = CURRENT
) -> Proxy:
    """The worker is enrolled twice: under the called role, and as a 1.0 worker."""
    hub = serve(place, name, more, checkout=checkout)
    enrol(hub, worker)
    enrol(hub, worker, role="apart", card="/card-1.0")
    return hub


def start_hub_on_hypercorn(place: RestRoute, worker: int) -> Proxy:
    return start_hub(place, worker, HUB_ON_HYPERCORN)


def serve(
    place: RestRoute, name: str, more: Mapping[str, str] | None = None, *, worker_tokens: int = 1, checkout: Checkout = CURRENT
) -> Proxy:
    """A hub with tokens, and with defaults except for `more`. One token may enrol 5,000 workers."""
    data = Path(tempfile.mkdtemp(dir=place.folder))
    calls_with = new_token(checkout, data, "--name", "bench")
    worker_names = [("--name", f"farm{n}", "--kind", "worker", "--role", "*") for n in range(worker_tokens)]
    enrol_with = tuple(new_token(checkout, data, *words) for words in worker_names)
    return resume(place, Proxy(name, 0, free_port(), 0.0, calls_with, enrol_with, data, checkout), more)


def resume(place: RestRoute, hub: Proxy, more: Mapping[str, str] | None = None) -> Proxy:
    """Start a hub that already has these tokens and data."""
    argv = hub.checkout.command("serve")
    own = {"ROLECALL_PORT": str(hub.port), "ROLECALL_DATA_DIR": str(hub.data)}
    if hub.name == HUB_ON_HYPERCORN:
        config = hub.data / "hypercorn.toml"
        config.write_text("keep_alive_max_requests = 1000000\nbacklog = 2048\n")  # the clients need more than 1,000 and 100
        words = (*_ON_HYPERCORN, "--config", config, "--bind", f"127.0.0.1:{hub.port}")
        argv = [hub.checkout.bin / "hypercorn", *words, "hub.asgi:app"]
        own["ROLECALL_HOST"] = "127.0.0.1"
    env = hub.checkout.environment({**CHANGED, **own, **(more or {})})
    process = place.start(argv, log=hub.name, cwd=hub.checkout.tree, env=env)
    until_answering(hub.port)
    return replace(hub, pid=process.pid, ready_after=machine.age(process.pid))


def new_token(checkout: Checkout, data: Path, *words: str) -> str:
    argv = checkout.command("tokens", "--data-dir", data, "new", *words)
    env = checkout.environment({})
    done = subprocess.run(argv, capture_output=True, text=True, cwd=checkout.tree, env=env, timeout=30, check=True)
    return done.stdout.strip()


def enrol(hub: Proxy, worker: int, *, role: str = "bench", card: str = "/.well-known/agent-card.json") -> None:
    offer = {"url": f"http://127.0.0.1:{worker}/", "boot": "bench", "card": ask(worker, card)}
    ask(hub.port, f"/registry/agents/{role}/a", "PUT", offer, token=hub.enrol_with[0])


StartFunction = Callable[[RestRoute, int], Proxy]
START_FUNCTIONS: dict[str, StartFunction] = {
    "nginx": start_nginx,
    FLOOR: start_floor,
    "sdk-1.3": start_agent,
    "sdk-0.3": start_old_agent,
    "hub": start_hub,
    HUB_ON_HYPERCORN: start_hub_on_hypercorn,
}


def missing_tools(proxies: Iterable[str] = tuple(START_FUNCTIONS)) -> list[str]:
    """Missing tools of these proxies. The worker and the client are always C programs."""
    tools = {"a C compiler": bool(c_command())}
    if "nginx" in (wanted := set(proxies)):
        tools["nginx"] = bool(find_nginx())
    agents = {"sdk-1.3": AGENT_EXECUTABLE, "sdk-0.3": OLD_AGENT_EXECUTABLE}
    tools |= {str(python.relative_to(ROOT)): python.exists() for name, python in agents.items() if name in wanted}
    return [name for name, found in tools.items() if not found]


def compile_c(program: str, folder: Path) -> Path:
    executable = folder / program
    subprocess.run([c_command() or "cc", "-O2", "-o", str(executable), str(HERE / "c" / f"{program}.c")], check=True)
    return executable


def c_command() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
