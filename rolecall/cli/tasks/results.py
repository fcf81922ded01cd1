"""The results of a task as files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rolecall.cli.output import CommandError, print_notice
from rolecall.model.a2a import JsonObject

if TYPE_CHECKING:
    from worker_sdk import File, HubClient


async def save_results(hub: HubClient, task_id: str, folder: Path) -> None:
    """Write its files into the folder, and the texts and data of its artifacts. CommandError: there is nothing, or the folder
    cannot be written.
    """
    from worker_sdk.calling.reply import save_files

    task = await hub.get_task(task_id)
    artifacts = task.raw.get("artifacts") or ()
    found = [file for number, artifact in enumerate(artifacts, 1) for file in _files_of(artifact, number, task.found)]
    for url in (url for artifact in artifacts for url in _elsewhere(artifact, task.found)):
        print_notice(f"not saved, because it is not at the hub: {url}")
    if not found:
        raise CommandError(f"the task {task_id} has no files and no artifacts", "NOTHING_TO_SAVE", 1)
    try:
        for path in await save_files(found, folder):
            print_notice(f"saved {path}")
    except OSError as error:
        raise CommandError(f"{folder} cannot be written: {error.strerror}", "USAGE", 2) from error


def _files_of(artifact: JsonObject, number: int, found: Mapping[str, File]) -> Iterator[File]:
    """An artifact without a name is called by its number."""
    from worker_sdk import File
    from worker_sdk.files.parts import files_of
    from worker_sdk.words import joined_file, text_of

    name, parts = str(artifact.get("name") or f"artifact-{number}"), artifact.get("parts") or ()
    whole = joined_file(parts)
    yield from files_of(parts if whole is None else (whole,), found)
    if text := text_of(parts):
        yield File(name if Path(name).suffix else f"{name}.txt", raw=text.encode())
    for data in (part["data"] for part in parts if part.get("kind") == "data"):
        yield File(f"{name}.json", raw=json.dumps(data, ensure_ascii=False, indent=2).encode() + b"\n")


def _elsewhere(artifact: JsonObject, found: Mapping[str, File]) -> list[str]:
    """The urls of files that are no files of the hub."""
    urls = [str((part.get("file") or {}).get("uri") or "") for part in artifact.get("parts") or ()]
    return [url for url in urls if url and url not in found]
