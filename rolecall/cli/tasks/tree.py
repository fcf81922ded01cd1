"""The tree of a task in a terminal: which tasks it has started, and which one has started it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rolecall.cli.output import cut, print_data, print_facts, print_table, took
from rolecall.cli.tasks.table import why
from rolecall.cli.tasks.usage import FIGURES, figures_of, used_in_words
from rolecall.model.a2a import JsonObject

_COLUMNS = ("TREE", "STATE", "WORKER", "TOOK")
_INDENT = "  "
_LONGEST = 160
"""Characters of a failure. `tasks show` of that task has all."""


def print_tree(tree: JsonObject) -> None:
    """The tasks of `GET /registry/tasks/{id}/tree`, each below the one that has started it, with what they have used, and why
    some have failed.
    """
    branches, used = tree["tasks"], tree["usage"]
    reasons = ("WHY",) if any(why(branch["task"]) for branch in branches) else ()
    columns = (*_COLUMNS, *(FIGURES if used else ()), "TASK", *reasons)
    rows = [
        (*_cells(branch["task"], depth, used=bool(used)), cut(why(branch["task"]), _LONGEST))
        for branch, depth in _in_order(branches)
    ]
    print_table(columns, [row[: len(columns)] for row in rows])
    if used:
        print_data("")
        print_facts([("used", used_in_words(used)), *budgets_in_words(branches)])


def budgets_in_words(branches: Sequence[JsonObject]) -> Iterator[tuple[str, str]]:
    for branch in branches:
        if budget := branch.get("budget"):
            spent = []
            if budget["cost"]:
                spent.append(f"{budget['spent_cost']['amount']} of {budget['cost']['amount']} {budget['cost']['currency']}")
            if budget["tokens"] is not None:
                spent.append(f"{budget['spent_tokens']} of {budget['tokens']} tokens")
            yield "budget", f"{', '.join(spent)} spent ({branch['task']['role']})"


def _cells(task: JsonObject, depth: int, *, used: bool) -> Sequence[object]:
    figures = figures_of(task.get("usage") or ()) if used else ()
    return _INDENT * depth + task["role"], task["state"], task.get("worker") or "—", took(task), *figures, task["id"]


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
