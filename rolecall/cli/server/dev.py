"""`rolecall dev`: run the hub in this process and each demo worker in its own, and print commands to try."""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hub.app import needs_tokens
from hub.run import serve
from hub.settings.agents import AgentSetting
from hub.settings.model import Settings
from rolecall import __version__
from rolecall.cli.connect import open_hub
from rolecall.cli.output import duration, print_notice
from rolecall.protocol.dialects import DIALECTS
from rolecall.setting import DEFAULT_HUB
from worker_sdk import HubClient, RolecallError
from worker_sdk.config import hub_address

DEMOS = ("echo", "storyteller", "booking")
_INSTANCE = "demo"
_PATIENCE = 20.0
_GRACE = 5.0
_PARENT_EXIT_SIGNAL = 1  # PR_SET_PDEATHSIG


def run_dev(settings: Settings, agents: Sequence[AgentSetting] = ()) -> None:
    """Run until SIGTERM or SIGINT; stop the workers first, then the hub."""
    own = settings.admin_token
    if own is None and needs_tokens(settings):
        # The demo workers need a token too: one that is valid until this process ends.
        settings = settings.model_copy(update={"admin_token": secrets.token_urlsafe(32)})
    asyncio.run(_dev(_open_to_the_demo(settings), agents, token_command=_token_command(own, settings.admin_token)))


def _token_command(own: str | None, token: str | None) -> str | None:
    """The command that sets a token for the others. It never contains a token."""
    if own is not None:
        return 'export ROLECALL_TOKEN="$ROLECALL_ADMIN_TOKEN"'
    return "export ROLECALL_TOKEN=…    (rolecall tokens new --name me)" if token is not None else None


async def _dev(settings: Settings, agents: Sequence[AgentSetting], *, token_command: str | None) -> None:
    started, leave, stop = time.monotonic(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, leave.set)
    where: asyncio.Future[str] = loop.create_future()
    hub = asyncio.create_task(serve(settings, agents=agents, stop=stop, ready=where.set_result), name="hub")
    hub.add_done_callback(lambda _: leave.set())
    workers: list[asyncio.subprocess.Process] = []
    try:
        first: list[asyncio.Future[Any]] = [hub, where]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if where.done():
            url = _local_url(settings, where.result())
            workers += [await _start(demo, url, settings.admin_token) for demo in DEMOS]
            await _welcome(settings, url, started, leave, token_command)
            await leave.wait()
    finally:
        await _end(workers)
        stop.set()
        await hub


async def _start(demo: str, url: str, token: str | None) -> asyncio.subprocess.Process:
    command = (
        "-m",
        "rolecall.cli",
        "worker",
        "run",
        f"rolecall.cli.demo:{demo}",
        "--instance",
        _INSTANCE,
        "--hub",
        url,
        "--quiet",
    )
    # Variables for the hub, or for a single worker, would give all three workers the same name or port.
    plain = {name: value for name, value in os.environ.items() if name != "PORT" and not name.startswith(("ROLECALL_", "A2A_"))}
    if "ROLECALL_CA_FILE" in os.environ:
        plain["ROLECALL_CA_FILE"] = os.environ["ROLECALL_CA_FILE"]
    if token is not None:
        plain["ROLECALL_TOKEN"] = token
    return await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=asyncio.subprocess.DEVNULL, env=plain, preexec_fn=_end_with_parent()
    )


def _end_with_parent() -> Callable[[], None] | None:
    """A killed hub cannot stop its workers; on Linux the kernel does."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_PARENT_EXIT_SIGNAL, signal.SIGTERM)


async def _end(workers: list[asyncio.subprocess.Process]) -> None:
    for worker in workers:
        _signal(worker, signal.SIGTERM)
    try:
        async with asyncio.timeout(_GRACE):
            for worker in workers:
                await worker.wait()
    except TimeoutError:
        for worker in workers:
            _signal(worker, signal.SIGKILL)


def _signal(worker: asyncio.subprocess.Process, which: signal.Signals) -> None:
    if worker.returncode is None:
        try:
            os.kill(worker.pid, which)
        except ProcessLookupError:
            pass  # it has just ended by itself


async def _welcome(settings: Settings, url: str, started: float, leave: asyncio.Event, token_command: str | None) -> None:
    async with open_hub(hub_address(url, settings.admin_token)) as hub:
        found = await _visible(hub, leave)
    if leave.is_set():
        return
    took = duration(time.monotonic() - started)
    store = settings.data_dir if settings.store == "sqlite" else settings.store
    print_notice(f"\n  rolecall {__version__} · A2A {', '.join(DIALECTS)} · Python {platform.python_version()}", "bold")
    lines = [f"hub      {url}   (data: {store})", f"ready in {took}"]
    lines += [f"+ {name} ready (demo worker)" for name in found]
    lines += [f"! {demo} did not start" for demo in DEMOS if not any(name.startswith(f"{demo}:") for name in found)]
    to_try = [*([token_command] if token_command else []), *things_to_try(url)]
    lines += ["", "Next, in another terminal:", *(f"  {line}" for line in to_try), ""]
    for line in lines:
        print_notice(f"  {line}".rstrip())


async def _visible(hub: HubClient, leave: asyncio.Event) -> list[str]:
    """The demo workers that callers can reach: all, or those that were ready in time."""
    deadline = time.monotonic() + _PATIENCE
    names: list[str] = []
    while len(names) < len(DEMOS) and time.monotonic() < deadline and not leave.is_set():
        try:
            agents = await hub.discover_agents(state="ready")
        except RolecallError:
            agents = []
        names = sorted(agent.name for agent in agents if agent.role in DEMOS and agent.instance == _INSTANCE)
        if len(names) < len(DEMOS):
            await asyncio.sleep(0.05)
    return names


def things_to_try(url: str) -> list[str]:
    """Commands that can be pasted into any shell on this machine, in any folder."""
    rolecall = executable()
    hub = "" if url == DEFAULT_HUB else f" --hub {url}"
    return [
        f'{rolecall} send{hub} echo "hello"',
        f'{rolecall} send{hub} storyteller "a lighthouse"',
        f"curl -s {url}/agents/echo/.well-known/agent-card.json",
    ]


def executable() -> str:
    """How to call this program: by its name if the shell finds it, else by its path."""
    own = Path(sys.executable).with_name("rolecall")
    found = shutil.which("rolecall")
    if found is not None and Path(found).resolve() == own.resolve():
        return "rolecall"
    if not own.exists():
        return f"{sys.executable} -m rolecall.cli"
    near = os.path.relpath(own)
    return near if not near.startswith("..") else str(own)


def _local_url(settings: Settings, url: str) -> str:
    """The hub's address on this machine, which may differ from its public URL. With TLS it is the one that cards name: the
    certificate need not be for another.
    """
    if settings.tls_cert is not None:
        return url
    if settings.public_url is None and settings.host not in ("0.0.0.0", "::"):
        return url
    port = settings.port or urlsplit(url).port
    return f"http://[::1]:{port}" if settings.host == "::" else f"http://127.0.0.1:{port}"


def _open_to_the_demo(settings: Settings) -> Settings:
    """Allow the addresses of the demo workers, which run on this machine, even if the hub listens to the network."""
    if settings.host.startswith("127.") or settings.host in ("::1", "localhost"):
        return settings
    here = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
    return settings.model_copy(update={"worker_networks": (*settings.worker_networks, *here)})
