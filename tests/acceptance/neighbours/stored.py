"""Tasks that a workspace has had for long, written into the database of a hub that does not run yet."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from hub.storage import FILE_NAME
from hub.storage.sqlite.connections.database import migrate, prepare
from rolecall.model.ids import new_task_id

_PARAMS = b'{"message":{"kind":"message","role":"user","messageId":"m","parts":[{"kind":"text","text":"hi"}]}}'
_UNFINISHED = frozenset({"input-required", "auth-required"})
_MOMENT = 2_000_000_000.0


def store_tasks(folder: Path, workspace: str, holder: str, states: Sequence[str], count: int) -> None:
    """That many tasks of a holder in `folder`, in these states by turns, each with one event. They are not retained for
    shorter than any test.
    """
    database = folder / FILE_NAME
    prepare(database)
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("pragma journal_mode = wal")
        migrate(db)
        db.execute("begin")
        for number in range(count):
            task, state = new_task_id(), states[number % len(states)]
            body = _event(task, state)
            key = _insert(db, "task", _row(task, state, number, len(body), workspace, holder))
            _insert(db, "event", {"place": (key << 24) + 1, "kind": "task", "state": state, "dialect": "0.3", "body": body})
        db.execute("commit")


def _insert(db: sqlite3.Connection, table: str, members: dict[str, Any]) -> int:
    sql = f"insert into {table} ({', '.join(members)}) values ({', '.join('?' * len(members))})"
    return int(db.execute(sql, tuple(members.values())).lastrowid or 0)


def _row(task: str, state: str, number: int, size: int, workspace: str, holder: str) -> dict[str, Any]:
    at = _MOMENT + number / 1000
    return {
        "id": task,
        "workspace": workspace,
        "caller": holder,
        "role": "echo",
        "worker": None,
        "epoch": 0,
        "context": "",
        "worker_task": "w",
        "worker_context": "w",
        "dialect": "0.3",
        "spoken": "0.3",
        "alias": "",
        "state": state,
        "last": 1,
        "position": "",
        "size": size,
        "created": at,
        "updated": at,
        "idle_since": None if state in _UNFINISHED else at,
        "turn_after": 0,
        "turn_message": "m",
        "turn_dialect": "0.3",
        "turn_params": _PARAMS,
    }


def _event(task: str, state: str) -> bytes:
    status = {"state": state, "timestamp": "2033-05-18T03:33:20Z"}
    return json.dumps({"kind": "task", "id": task, "contextId": "c", "status": status}, separators=(",", ":")).encode()
