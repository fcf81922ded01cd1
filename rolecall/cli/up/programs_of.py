"""The programs that agents.toml describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rolecall.cli.console.programs import Program, own_command, worker_environment
from rolecall.cli.console.watched_files import Sources
from rolecall.cli.up.agents_file import AgentsFile, AnnounceEntry, WorkerEntry
from worker_sdk.config import default_instance

_TAKEN_OVER = {3: "another process has its name at the hub"}


def programs_of(file: AgentsFile, access: Mapping[str, str]) -> list[Program]:
    """`access`: the variables by which workers reach the hub."""
    found = [program for name, worker in file.workers.items() for program in _instances(file, name, worker, access)]
    return found + [_announced_program(file, name, entry, access) for name, entry in file.announced.items()]


def names_of(file: AgentsFile) -> list[str]:
    """What their lines begin with."""
    found = [name for worker in file.workers for name in _names_of(worker, file.workers[worker].instances)]
    return found + [_announced_as(name) for name in file.announced]


def _names_of(name: str, instances: int) -> list[str]:
    return [f"{name}:{number}" for number in range(1, instances + 1)] if instances > 1 else [name]


def _announced_as(name: str) -> str:
    return f"announce {name}"


def _instances(file: AgentsFile, name: str, worker: WorkerEntry, access: Mapping[str, str]) -> Iterator[Program]:
    folder = file.path_of(worker.cwd)
    for shown in _names_of(name, worker.instances):
        # Made once: after a restart it is the same worker, so that the hub learns at once that the process before is gone.
        instance = worker.env.get("ROLECALL_INSTANCE") or default_instance()
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
            sources=sources_of(worker, folder),
        )


def argv_of(worker: WorkerEntry, *instance: str) -> tuple[str, ...]:
    if worker.run is None:
        return worker.command or ()
    return own_command("worker", "run", worker.run, *(("--instance", *instance) if instance else ()))


def sources_of(worker: WorkerEntry, folder: Path) -> Sources:
    module = worker.run.partition(":")[0].removesuffix(".py").replace("/", ".") if worker.run is not None else None
    return Sources(folder, module=module, words=worker.command or (), watch=worker.watch)


def _announced_program(file: AgentsFile, name: str, entry: AnnounceEntry, access: Mapping[str, str]) -> Program:
    role, instance = entry.role or name, default_instance()
    words = ["announce", role, entry.url, "--instance", instance, "--wait", "inf"]
    words += ["--capacity", str(entry.capacity)] if entry.capacity is not None else []
    words += ["--agent-token-file", str(file.path_of(entry.agent_token_file))] if entry.agent_token_file is not None else []
    return Program(
        name=_announced_as(name),
        argv=own_command(*words),
        cwd=file.folder,
        env=worker_environment(access, instance, {}),
        final={2: "its file of the token is wrong", **_TAKEN_OVER},
        role=role,
        instance=instance,
        note=f"announced, {entry.url}",
    )
