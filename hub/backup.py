"""A copy of a hub's data folder, from which the hub can be started again."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from hub.identity.tokens import FILE_NAME as TOKENS_FILE
from hub.identity.tokens import MARK_NAME as TOKENS_MARK
from hub.identity.vault import KEY_FILE
from hub.settings.model import Settings
from hub.storage.backup import CopiedState, copy_access, copy_file, copy_state
from rolecall.errors import StoreError
from rolecall.system.files import sync_folder


class Backup(NamedTuple):
    """`others`: the names of what was copied besides."""

    state: CopiedState
    others: tuple[str, ...]


def back_up(settings: Settings, folder: Path) -> Backup:
    """All or nothing: the folder has its name only when it is complete. StoreError."""
    if settings.store == "memory:":
        raise StoreError("A hub with the store memory: keeps nothing that could be copied.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StoreError(f"{folder} exists and is not empty. Name a new folder: a backup never changes an older one.")
    folder = folder.absolute()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        incomplete = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            backup = _copy(settings, incomplete)
            if folder.exists():
                folder.rmdir()
            incomplete.rename(folder)
        except BaseException:
            shutil.rmtree(incomplete, ignore_errors=True)
            raise
    except OSError as error:
        raise StoreError(f"{error.filename or folder}: {error.strerror}. Nothing was kept of the copy.") from error
    sync_folder(folder.parent)
    return backup


def _copy(settings: Settings, folder: Path) -> Backup:
    data_dir = settings.data_dir
    state = copy_state(data_dir, folder)
    sources = {
        KEY_FILE: data_dir / KEY_FILE,
        TOKENS_FILE: settings.tokens or data_dir / TOKENS_FILE,
        TOKENS_MARK: data_dir / TOKENS_MARK,
    }
    others = tuple(name for name, source in sources.items() if source.exists())
    for name in others:
        copy_file(sources[name], folder / name)
    copy_access(data_dir, folder)
    for path in (folder, *(one for one in folder.rglob("*") if one.is_dir())):
        sync_folder(path)
    return Backup(state, others)
