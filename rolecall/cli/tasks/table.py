"""A list of tasks as a table."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from rolecall.cli.output import is_terminal, print_table, table_width, took
from rolecall.cli.tasks.usage import FIGURES, figures_of
from rolecall.model.a2a import JsonObject

_END = 8
"""Characters of an id on a narrow terminal. Every command takes the end of an id."""


def print_tasks(tasks: Sequence[JsonObject]) -> None:
    """With what they have used, if any has; of a root it is what its tree has used. On a terminal that is too narrow there are
    fewer columns, and ids are cut.
    """
    used = any(_usage(task) for task in tasks)
    columns, rows = _wide(tasks, used=used)
    if is_terminal(sys.stdout) and table_width(columns, rows) > shutil.get_terminal_size().columns:
        columns, rows = _narrow(tasks, used=used)
    print_table(columns, rows)


def _wide(tasks: Sequence[JsonObject], *, used: bool) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    rows = [
        (
            *(task["id"], task["role"], task.get("worker") or "—", task["state"], task["events"], took(task)),
            *(figures_of(_usage(task)) if used else ()),
            task["updated"],
        )
        for task in tasks
    ]
    return ("TASK", "ROLE", "WORKER", "STATE", "EVENTS", "TOOK", *(FIGURES if used else ()), "UPDATED"), rows


def _narrow(tasks: Sequence[JsonObject], *, used: bool) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    rows = [
        (
            *(task["id"][-_END:], task.get("worker") or task["role"], task["state"], took(task)),
            *(figures_of(_usage(task)) if used else ()),
        )
        for task in tasks
    ]
    return ("TASK", "WORKER", "STATE", "TOOK", *(FIGURES if used else ())), rows


def _usage(task: JsonObject) -> Sequence[JsonObject]:
    return task.get("tree_usage") or task.get("usage") or ()
