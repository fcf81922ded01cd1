"""`rolecall up --check`: find what would go wrong, and start nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from rolecall.cli import explained
from rolecall.cli.announced import find_card
from rolecall.cli.console.hub_choice import choose_hub
from rolecall.cli.console.programs import worker_environment
from rolecall.cli.console.reloading.loading import load
from rolecall.cli.doctor.check import FAIL, Check, failed, passed, print_check, skipped
from rolecall.cli.output import CommandError, counted
from rolecall.cli.up.agents_file import AgentsFile, AnnounceEntry, WorkerEntry
from rolecall.cli.up.programs_of import check_of
from rolecall.errors import HubError
from rolecall.system.sockets import bound_socket
from worker_sdk.calling.trust import tls_towards
from worker_sdk.config import hub_address
from worker_sdk.errors import RolecallError

_AT_ONCE = 4


async def check_all(file: AgentsFile, given: str | None, token: str | None, config: Path | None) -> int:
    """Print each check. Returns the exit code: 0, or that of the first failure."""
    code = 0
    async for check in _checks(file, given, token, config):
        print_check(check)
        code = code or (check.code if check.state == FAIL else 0)
    return code


async def _checks(file: AgentsFile, given: str | None, token: str | None, config: Path | None) -> AsyncIterator[Check]:
    count = sum(worker.instances for worker in file.workers.values())
    yield passed("file", f"{file.path}: {counted(count, 'worker')}, {len(file.announced)} announced")
    yield await _hub(given, token, config)
    limit = asyncio.Semaphore(_AT_ONCE)
    workers = [asyncio.create_task(_worker(file, name, worker, limit)) for name, worker in file.workers.items()]
    for worker in workers:
        yield await worker
    for check in _ports(file):
        yield check
    for name, announced in file.announced.items():
        yield await _announced(name, announced)


async def _hub(given: str | None, token: str | None, config: Path | None) -> Check:
    try:
        hub = await choose_hub(given, token, config)
    except (CommandError, RolecallError, HubError) as error:
        problem = explained(error)
        return failed("hub", problem.message, problem.hint, problem.code)
    if hub.own is None:
        return passed("hub", f"{hub.address.url} runs, and is used")
    return passed("hub", f"none runs; it would start at {hub.address.url} ({hub.own.place})")


async def _worker(file: AgentsFile, name: str, worker: WorkerEntry, limit: asyncio.Semaphore) -> Check:
    title, folder = f"worker {name}", file.path_of(worker.cwd)
    env = worker_environment({}, "check", worker.env)
    if worker.run is None:
        word = (worker.command or ("",))[0]
        # As the system looks for it: a path is relative to the folder, a name is on the PATH.
        place = shutil.which(str(folder / word) if os.path.dirname(word) else word, path=env.get("PATH"))
        if place is None:
            return failed(title, f"there is no program {word}", f"command of [workers.{name}], in {folder}", 2)
        return passed(title, f"{place} is there")
    async with limit:
        found = await load(check_of(worker), folder, env)
    if found.problem:
        return failed(title, f"{worker.run} cannot be loaded", found.problem, 2)
    return passed(title, f"{worker.run} serves {found.role or 'a role'}")


def _ports(file: AgentsFile) -> Iterator[Check]:
    """Those that the file gives to workers."""
    users: dict[str, str] = {}
    for name, worker in file.workers.items():
        port = worker.env.get("PORT")
        if port is None:
            continue
        title = f"port {port}"
        if port in users:
            yield failed(title, f"is for both {users[port]} and {name}", "give each a PORT of its own, or none", 2)
        elif not port.isascii() or not port.isdigit() or int(port) > 65535:
            yield failed(title, f"PORT of {name} is not a number up to 65535", "see env", 2)
        elif not _is_free(int(port)):
            yield failed(title, f"is taken, and {name} needs it", "stop what listens there, or choose another PORT", 2)
        else:
            yield passed(title, f"is free for {name}")
        users[port] = name


def _is_free(port: int) -> bool:
    try:
        bound_socket("127.0.0.1", port).close()
    except OSError:
        return False
    return True


async def _announced(name: str, entry: AnnounceEntry) -> Check:
    import httpx

    ca_file = hub_address().ca_file
    async with httpx.AsyncClient(timeout=5, verify=tls_towards(entry.url, ca_file), trust_env=False) as client:
        card, why = await find_card(client, entry.url, ca_file)
    if card is None:
        return skipped(f"announce {name}", f"{entry.url}: {why}; it is waited for")
    return passed(f"announce {name}", f"its card is at {card}")
