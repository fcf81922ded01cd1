"""A list of tasks as a table."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from rolecall.cli.output import cut, is_terminal, local_time, print_table, strip_control, table_width, took
from rolecall.cli.tasks.usage import FIGURES, figures_of
from rolecall.model.a2a import JsonObject

_END = 8
"""Characters of an id on a narrow terminal. Every command takes the end of an id."""
_Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""The names of the columns, and the rows."""


def print_tasks(tasks: Sequence[JsonObject]) -> None:
    """With what was asked, why it failed, and what was used, where any of it is known; of a root that is what its tree has
    used. On a terminal texts are cut at its width, and one that is too narrow has fewer columns.
    """
    used = any(_usage(task) for task in tasks)
    texts = [(name, [text_of(task) for task in tasks]) for name, text_of in (("ASKED", _asked), ("WHY", why))]
    texts = [(name, column) for name, column in texts if any(column)]
    if not is_terminal(sys.stdout):
        print_table(*_with(_wide(tasks, used=used), texts, sys.maxsize))
        return
    columns = shutil.get_terminal_size().columns
    # The first that leaves so many characters for each text.
    tables = (
        (24, _wide(tasks, used=used)),
        (14, _short(tasks, used=used)),
        (11, _short(tasks, used=used, worker=False)),
        (0, _short(tasks, used=used, worker=False, updated=False)),
    )
    for least, table in tables:
        room = columns - table_width(*table)
        if room >= (least + 2) * len(texts):
            break
    print_table(*_with(table, texts, room))


def why(task: JsonObject) -> str:
    """Why it was not completed. Empty: it was, or nobody knows."""
    reason, detail = str(task.get("reason") or ""), str(task.get("detail") or "")
    return f"{reason}: {detail}" if reason and detail else reason or detail


def _asked(task: JsonObject) -> str:
    return str(task.get("asked") or "")


def _with(table: _Table, texts: Sequence[tuple[str, Sequence[str]]], room: int) -> _Table:
    """With these columns behind the others, in that room."""
    head, rows = table
    for at, (name, column) in enumerate(texts):
        later = sum(_width(*other) + 2 for other in texts[at + 1 :])
        share = max(room // (len(texts) - at), room - later) - 2
        if share < len(name):
            break  # so narrow a column says nothing
        width = min(_width(name, column), share)
        head = (*head, name)
        rows = [(*row, cut(strip_control(cell), width)) for row, cell in zip(rows, column, strict=True)]
        room -= width + 2
    return head, rows


def _width(name: str, column: Sequence[str]) -> int:
    return max(len(name), *map(len, column))


def _wide(tasks: Sequence[JsonObject], *, used: bool) -> _Table:
    rows = [
        (
            *(
                task["id"],
                *_holder(task),
                task["role"],
                task.get("worker") or "—",
                task["state"],
                str(task["events"]),
                took(task),
            ),
            *(figures_of(_usage(task)) if used else ()),
            local_time(task["updated"]),
        )
        for task in tasks
    ]
    return ("TASK", *_whose(tasks), "ROLE", "WORKER", "STATE", "EVENTS", "TOOK", *(FIGURES if used else ()), "UPDATED"), rows


def _short(tasks: Sequence[JsonObject], *, used: bool, worker: bool = True, updated: bool = True) -> _Table:
    """With the ends of ids, and without what is left out of a row that has little room."""
    rows = [
        (
            *(task["id"][-_END:], *_holder(task), (worker and task.get("worker")) or task["role"], task["state"], took(task)),
            *(figures_of(_usage(task)) if used else ()),
            *((local_time(task["updated"], short=True),) if updated else ()),
        )
        for task in tasks
    ]
    head = ("TASK", *_whose(tasks), "WORKER" if worker else "ROLE", "STATE", "TOOK", *(FIGURES if used else ()))
    return (*head, "UPDATED") if updated else head, rows


def _holder(task: JsonObject) -> tuple[str, ...]:
    """In a list of all holders."""
    return (str(task["holder"]),) if "holder" in task else ()


def _whose(tasks: Sequence[JsonObject]) -> tuple[str, ...]:
    return ("HOLDER",) if any("holder" in task for task in tasks) else ()


def _usage(task: JsonObject) -> Sequence[JsonObject]:
    return task.get("tree_usage") or task.get("usage") or ()
