"""The version of the database that the hub writes. It loads nothing of the hub, so that every command can tell it."""

from __future__ import annotations

from pathlib import Path

MIGRATIONS = Path(__file__).parents[1] / "hub" / "storage" / "sqlite" / "migrations"


def newest(folder: Path = MIGRATIONS) -> int:
    return max(int(step.name[:4]) for step in folder.glob("[0-9]*.sql"))
