"""Which console this is: a file has one at a time, and at a hub that it shares with others its name tells it from them."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rolecall.cli.output import CommandError, print_notice
from rolecall.setting import platform_folder, variable
from rolecall.system.files import private
from rolecall.system.locks import lock_file, unlock

_LETTERS = "bcdfghjkmnpqrstvwxz23456789"
"""They make no words, and none looks like another."""


@contextmanager
def only_console(file: Path, name: str | None) -> Iterator[str]:
    """While it is open, no other console of that file and name runs for this user. Yields its name; without one, four letters
    that are the same at each start, and others for any other file and machine. CommandError: one runs already.
    """
    made = name or "".join(secrets.choice(_LETTERS) for _ in range(4))
    try:
        place = _place(file.resolve(), name)
        lock = lock_file(place.with_suffix(".lock"))
    except BlockingIOError:
        process = _read(place).get("process")
        where = f", in process {process}" if isinstance(process, int) else ""
        hint = "end that one, or run a copy beside it, whose workers have other names: rolecall up --name NAME"
        raise CommandError(f"{file} runs already{where}", "RUNS_ALREADY", 2, hint) from None
    except OSError as error:
        print_notice(f"a second console of {file} would not be noticed: {error.filename}: {error.strerror}", "yellow")
        yield made
        return
    try:
        known = _read(place).get("console")
        console = known if isinstance(known, str) else made
        about = {"file": str(file.resolve()), "console": console, "process": os.getpid()}
        with open(place, "w", encoding="utf-8", opener=private) as out:
            json.dump(about, out)
        yield console
    finally:
        unlock(lock)


def _place(file: Path, name: str | None) -> Path:
    """What is known of that console, in the folder for data. OSError: there is no such folder, and none can be made."""
    data = os.environ.get(variable("data_dir")) or platform_folder(os.environ)
    if data is None:
        raise FileNotFoundError(0, "this user has no home directory", "~")
    folder = Path(data).expanduser() / "consoles"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.sha256(f"{file}\0{name or ''}".encode()).hexdigest()
    return folder / f"{digest[:24]}.json"


def _read(place: Path) -> dict[str, Any]:
    """Nothing if it is new. A process may have been killed as it wrote."""
    try:
        found = json.loads(place.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
