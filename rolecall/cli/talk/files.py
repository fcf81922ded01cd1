"""Files of this machine as parts of a message."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rolecall.cli.output import CommandError

if TYPE_CHECKING:
    from worker_sdk import File


def file_at(path: Path) -> File:
    """It is read when it is sent. CommandError: it cannot be read."""
    from worker_sdk import File

    try:
        path.open("rb").close()
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}", "USAGE", 2) from error
    return File(path=path)
