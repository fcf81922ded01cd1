"""Real processes for tests: hubs, workers, any command. Each writes its output to a file, and is ended by its pid."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO, TypeVar

import httpx

from tests.helpers.certificates import Certificate

ROOT = Path(__file__).parents[2]
READY_WITHIN = 15.0
_POLL, _POLL_PROCESS = 0.02, 0.05
"""Seconds. A process takes longer to be ready, and each look at it takes CPU from it."""
_PORTS = range(20_000, 30_000)
"""Below the ephemeral ports of the system."""
_locked: list[TextIO] = []
_FORGOTTEN = ("ROLECALL_", "A2A_", "PUSH_NOTIFICATION_")

# The command line as a process: from this tree, whatever is installed.
ROLECALL = (sys.executable, "-m", "rolecall.cli")
SERVERS = ("rolecall", "hypercorn", "uvicorn")
"""What can serve a hub: `rolecall serve`, or another server that runs `hub.asgi:app`."""
_AnyProcess = TypeVar("_AnyProcess", bound="Process")

running: list[Process] = []
"""The processes that run now, for the report of a failure."""


def _reset_signal() -> None:
    """A shell that runs its jobs in the background lets them ignore SIGINT; children must not inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Process:
    """One process, started at once. As a context manager it is stopped at the end, and killed if that takes too long."""

    def __init__(
        self,
        argv: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        name: str = "",
    ) -> None:
        self.with_children = False
        """`kill9` ends its children too, as the end of a container does."""
        self.argv = [str(word) for word in argv]
        self.name = name or Path(self.argv[0]).name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=environment(env or {}),
                start_new_session=True,
                preexec_fn=_reset_signal,
            )
        running.append(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def output(self) -> str:
        """Its output so far, of both streams, after that of earlier processes with the same file."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def pause(self) -> None:
        """Stop it with its sockets open, as on a machine that hangs."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill9(self) -> None:
        """End it at once, without clean-up. Returns when the process is gone."""
        if self.with_children:
            os.killpg(self.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait(10)
        self._ended()

    def stop(self, timeout: float = 10.0) -> int:
        """Ask it to end, and return its exit code. One that does not end in time is killed and fails the test."""
        self.signal(signal.SIGTERM)
        self.resume()
        return self.wait(timeout)

    def wait(self, timeout: float = 10.0) -> int:
        """Wait until it ends by itself, and return its exit code."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise AssertionError(f"{self.name} did not end within {timeout:g} s\n{self.tail()}") from None
        self._ended()
        return code

    def end(self) -> None:
        """Stop it, or kill it: for clean-up."""
        if self.alive:
            try:
                self.stop(5.0)
            except AssertionError:
                return
        self._ended()

    def tail(self, lines: int = 40) -> str:
        """The end of its output with its name, for the text of a failure."""
        kept = self.output.splitlines()[-lines:]
        return "\n".join([f"--- {self.name} (pid {self.pid}, {self.log}) ---", *kept])

    def wait_until(self, predicate: Callable[[], bool], timeout: float = READY_WITHIN) -> None:
        """Wait until the predicate holds. A process that ends meanwhile fails the test, with its output."""

        def holds() -> bool:
            alive = self.alive  # read before the predicate: what a process does last, before it ends, counts
            if predicate():
                return True
            if not alive:
                raise AssertionError(f"{self.name} ended with {self._process.returncode}\n{self.tail()}")
            return False

        try:
            wait_for(holds, timeout, poll=_POLL_PROCESS)
        except TimeoutError:
            raise AssertionError(f"{self.name} was not ready within {timeout:g} s\n{self.tail()}") from None

    def _ended(self) -> None:
        if self in running:
            running.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()


class HubProcess(Process):
    """A hub and its URL. The URL stays when it is started again on the same port."""

    def __init__(self, data_dir: Path, *, port: int, log: Path, env: Mapping[str, str], argv: Sequence[str] = ()) -> None:
        self.data_dir = data_dir
        self.port = port
        scheme = "https" if "ROLECALL_TLS_CERT" in env else "http"
        self.url = f"{scheme}://127.0.0.1:{port}"
        chosen = {"ROLECALL_PORT": str(port), "ROLECALL_DATA_DIR": str(data_dir), **env}
        super().__init__(argv or (*ROLECALL, "serve"), log=log, env=chosen, name=f"hub {port}")

    def wait_ready(self, timeout: float = READY_WITHIN) -> None:
        self.wait_until(lambda: status_of(f"{self.url}/readyz") == 200, timeout)


def start_hub(
    data_dir: Path,
    *,
    port: int = 0,
    log: Path | None = None,
    argv: Sequence[str] = (),
    server: str = "rolecall",
    certificate: Certificate | None = None,
    **settings: object,
) -> HubProcess:
    """A hub that is ready. Settings by their names: `start_hub(folder, lease_ttl=2)`. Port 0 takes a free one. `argv`:
    another command that runs a hub. `server`: one of SERVERS. `certificate`: for TLS.
    """
    if certificate is not None:
        settings |= {"tls_cert": certificate.cert, "tls_key": certificate.key}
    env = {f"ROLECALL_{name.upper()}": str(value) for name, value in settings.items()}
    data_dir.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    if server != "rolecall":
        argv, env = server_argv(server, port), {"ROLECALL_HOST": "127.0.0.1", **env}
    hub = HubProcess(data_dir, port=port, log=log or data_dir / "hub.log", env=env, argv=argv)
    hub.with_children = server == "hypercorn"
    return _ready(hub, hub.wait_ready)


def server_argv(server: str, port: int, host: str = "127.0.0.1") -> Sequence[str]:
    """A server that is not the hub's own, with a hub in it. It is told to cut streams a second after SIGTERM."""
    words = {
        "hypercorn": ("--bind", f"{host}:{port}", "--graceful-timeout", "1"),
        "uvicorn": ("--host", host, "--port", str(port), "--timeout-graceful-shutdown", "1"),
    }
    return (sys.executable, "-m", server, *words[server], "hub.asgi:app")


def start_worker(
    source: str | Path,
    name: str,
    hub_url: str,
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    enrolled: bool = True,
) -> Process:
    """A worker from a script, or from `module:worker` through the command line; `name` is its `role:instance`.

    Returns when the hub lists that name. `enrolled=False`: at once, for a hub that does not run yet.
    """
    argv = (sys.executable, str(source)) if isinstance(source, Path) else (*ROLECALL, "worker", "run", source)
    variables = {"ROLECALL_HUB": hub_url, "ROLECALL_INSTANCE": name.partition(":")[2], **(env or {})}
    worker = Process(argv, log=log, env=variables, cwd=cwd, name=f"worker {name}")
    token = variables.get("ROLECALL_TOKEN")
    return _ready(worker, lambda: worker.wait_until(lambda: is_live(hub_url, name, token))) if enrolled else worker


def start_announce(
    role: str,
    url: str,
    hub_url: str,
    *options: str,
    log: Path,
    instance: str = "announced",
    env: Mapping[str, str] | None = None,
) -> Process:
    """`rolecall announce` for a server that runs at `url`, once the hub has read its card."""
    name = f"{role}:{instance}"
    argv = (*ROLECALL, "announce", role, url, "--instance", instance, *options)
    announce = Process(argv, log=log, env={"ROLECALL_HUB": hub_url, **(env or {})}, name=f"announce {name}")
    return _ready(announce, lambda: announce.wait_until(lambda: has_read_card(hub_url, name)))


def start_script(
    argv: Sequence[str | Path], *, log: Path, ready_url: str, name: str = "", env: Mapping[str, str] | None = None
) -> Process:
    """Any server, ready when `ready_url` answers with 200."""
    server = Process(argv, log=log, env=env, name=name)
    return _ready(server, lambda: server.wait_until(lambda: status_of(ready_url) == 200))


def is_live(hub_url: str, name: str, token: str | None = None) -> bool:
    """Whether the hub lists `role:instance`."""
    return status_of(f"{hub_url}/registry/agents/{name}", token) == 200


def has_read_card(hub_url: str, name: str, token: str | None = None) -> bool:
    """Whether the hub lists it and has read its card by itself."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(f"{hub_url}/registry/agents/{name}", headers=headers, timeout=2, trust_env=False)
    except httpx.HTTPError:
        return False
    return answer.status_code == 200 and bool(answer.json()["card_read"]["at"])


def status_of(url: str, token: str | None = None) -> int:
    """The HTTP status of a GET; 0 without an answer. Any certificate will do."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        return httpx.get(url, headers=headers, timeout=2, trust_env=False, verify=False).status_code
    except httpx.HTTPError:
        return 0


def run_json(argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, timeout: float = 30.0) -> object:
    """Run a command to its end and read its stdout as JSON. A failure shows the output of the command."""
    words = [str(word) for word in argv]
    done = subprocess.run(
        words, env=environment(env or {}), cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    result: object = json.loads(done.stdout)
    return result


def wait_for(predicate: Callable[[], bool], timeout: float = 10.0, *, poll: float = _POLL) -> None:
    """Poll until it holds. TimeoutError if it never does."""
    until = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > until:
            raise TimeoutError(f"not within {timeout:g} s")
        time.sleep(poll)


def free_port() -> int:
    """A port that neither the tests nor the system give out again while this process runs: a killed hub can be started on it
    again.
    """
    locks = Path(tempfile.gettempdir()) / f"rolecall-test-ports-{os.getuid()}"
    locks.mkdir(exist_ok=True)
    rng = random.SystemRandom()
    for _ in range(1000):
        port = rng.choice(_PORTS)
        lock = (locks / str(port)).open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            continue
        _locked.append(lock)
        return port
    raise AssertionError("no port is free")


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process without the settings of a hub or a worker, and with the packages of this tree."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_FORGOTTEN)}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **extra}


def _ready(process: _AnyProcess, wait: Callable[[], None]) -> _AnyProcess:
    """A process that fails to start is ended."""
    try:
        wait()
    except BaseException:
        process.end()
        raise
    return process


@atexit.register
def _end_all() -> None:
    for process in tuple(running):
        process.kill9()
