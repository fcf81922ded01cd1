"""Files of this machine as parts of a message."""

from __future__ import annotations

from mimetypes import guess_type
from pathlib import Path
from typing import TYPE_CHECKING

from rolecall.cli.output import CommandError

if TYPE_CHECKING:
    from worker_sdk import File


def file_at(path: Path) -> File:
    """CommandError: it cannot be read."""
    try:
        return file_of(path.name, path.read_bytes())
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}", "USAGE", 2) from error


def file_of(name: str, raw: bytes) -> File:
    from worker_sdk import File

    return File(name, guess_type(name)[0] or "application/octet-stream", raw)
