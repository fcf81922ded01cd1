"""The programs that agents.toml describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rolecall.cli.console.programs import Program, own_command, worker_environment
from rolecall.cli.console.reloading.watched_files import Sources
from rolecall.cli.up.agents_file import AgentsFile, AnnounceEntry, WorkerEntry

_TAKEN_OVER = {3: "another process has its name at the hub"}
_ANNOUNCED = "announced"


def programs_of(file: AgentsFile, access: Mapping[str, str], console: str = "") -> list[Program]:
    """`access`: the variables by which workers reach the hub. `console`: what tells their names from those of the same file in
    another console at that hub; empty where there is no other.
    """
    found = [program for name, worker in file.workers.items() for program in _instances(file, name, worker, access, console)]
    return found + [_announced_program(file, name, entry, access, console) for name, entry in file.announced.items()]


def names_of(file: AgentsFile, console: str = "") -> list[str]:
    """What their lines begin with: their names at the hub, where NAME is the role that they serve."""
    found = [name for worker in file.workers for name in _names_of(worker, file.workers[worker], console)]
    return found + [_named(name, console, _ANNOUNCED) for name in file.announced]


def _named(*parts: str) -> str:
    return ":".join(part for part in parts if part)


def _names_of(name: str, worker: WorkerEntry, console: str) -> list[str]:
    """The same at each start: a worker that starts again takes its name from the process before, and nobody waits for the
    lease of that.
    """
    given = worker.env.get("ROLECALL_INSTANCE")
    if given is not None:
        return [_named(name, given.removeprefix(f"{name}:"))]
    return [_named(name, console, str(number)) for number in range(1, worker.instances + 1)]


def _instances(file: AgentsFile, name: str, worker: WorkerEntry, access: Mapping[str, str], console: str) -> Iterator[Program]:
    folder = file.path_of(worker.cwd)
    for shown in _names_of(name, worker, console):
        instance = worker.env.get("ROLECALL_INSTANCE") or shown
        yield Program(
            name=shown,
            argv=argv_of(worker, instance),
            cwd=folder,
            env=worker_environment(access, instance, worker.env),
            restart=worker.restart,
            drain=worker.drain,
            final=_TAKEN_OVER if worker.run is not None else {},
            instance=instance,
            enrols=worker.run is not None,
            entry=f"workers.{name}",
            check=check_of(worker),
            sources=sources_of(worker, folder),
        )


def argv_of(worker: WorkerEntry, instance: str) -> tuple[str, ...]:
    if worker.run is None:
        return worker.command or ()
    return own_command("worker", "run", worker.run, "--instance", instance)


def check_of(worker: WorkerEntry) -> tuple[str, ...]:
    """The words that load it, print its role, and start nothing. Empty: nobody knows how."""
    return own_command("worker", "run", worker.run, "--check") if worker.run is not None else ()


def sources_of(worker: WorkerEntry, folder: Path) -> Sources:
    module = worker.run.partition(":")[0].removesuffix(".py").replace("/", ".") if worker.run is not None else None
    return Sources(folder, module=module, words=worker.command or (), watch=worker.watch)


def _announced_program(file: AgentsFile, name: str, entry: AnnounceEntry, access: Mapping[str, str], console: str) -> Program:
    role, shown = entry.role or name, _named(name, console, _ANNOUNCED)
    words = ["announce", role, entry.url, "--instance", shown, "--wait", "inf"]
    words += ["--capacity", str(entry.capacity)] if entry.capacity is not None else []
    words += ["--agent-token-file", str(file.path_of(entry.agent_token_file))] if entry.agent_token_file is not None else []
    return Program(
        name=shown,
        argv=own_command(*words),
        cwd=file.folder,
        env=worker_environment(access, shown, {}),
        final={2: "its file of the token is wrong", **_TAKEN_OVER},
        role=role,
        instance=shown,
        note=entry.url,
        entry=f"announce.{name}",
    )
