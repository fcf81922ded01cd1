"""The tree of a task in a terminal: which tasks it has started, and which one has started it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rolecall.cli.output import print_table, took
from rolecall.model.a2a import JsonObject

_COLUMNS = ("TREE", "STATE", "WORKER", "TOOK", "TASK")
_INDENT = "  "


def print_tree(branches: Sequence[JsonObject]) -> None:
    """The tasks of `GET /registry/tasks/{id}/tree`, each below the one that has started it."""
    print_table(_COLUMNS, [_cells(branch["task"], depth) for branch, depth in _in_order(branches)])


def _cells(task: JsonObject, depth: int) -> Sequence[object]:
    return _INDENT * depth + task["role"], task["state"], task.get("worker") or "—", took(task), task["id"]


def _in_order(branches: Sequence[JsonObject]) -> Iterator[tuple[JsonObject, int]]:
    """Each with its depth. One whose parent is not among them stands at the top."""
    known = {branch["task"]["id"] for branch in branches}
    below: dict[str | None, list[JsonObject]] = {}
    for branch in branches:
        below.setdefault(branch["parent"] if branch["parent"] in known else None, []).append(branch)
    pending = [(branch, 0) for branch in reversed(below.get(None, ()))]
    while pending:
        branch, depth = pending.pop()
        yield branch, depth
        pending += [(child, depth + 1) for child in reversed(below.get(branch["task"]["id"], ()))]
