"""Conditions for a round to count: nothing lost, nothing invented, nothing answered from a cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.bench.figures import Case
from tests.bench.rig import StoredTasks

_CLEAN = ("bad", "broken", "hung", "repeated_ids")


def check_counts(answer: dict[str, Any], served: tuple[int, int], case: Case) -> list[str]:
    """Client and worker counted the same calls, and every call was its own task."""
    problems = [f"{answer[name]} calls {name}" for name in _CLEAN if answer[name]]
    if problems and answer["complaint"]:
        problems.append(answer["complaint"])
    calls, events = served
    if not answer["calls"]:
        problems.append("not one call was answered")
    if not answer["begun"] == answer["calls"] == calls:
        problems.append(f"client began {answer['begun']} calls and ended {answer['calls']}; the worker answered {calls}")
    if not answer["events"] == events == calls * case.events:
        problems.append(f"client saw {answer['events']} events; the worker sent {events}, of {case.events} a call")
    return problems


def check_stored(answer: dict[str, Any], before: int, stored: StoredTasks, case: Case) -> list[str]:
    """Every call is a stored task with all its events. A few tasks are fetched and checked."""
    problems = []
    added = stored.total() - before
    if added != answer["calls"]:
        problems.append(f"{answer['calls']} calls, but {added} tasks more in the store")
    for row in stored.newest(answer["calls"]):
        if row["state"] != "completed" or row["events"] != case.events:
            problems.append(f"task {row['id']} is {row['state']} with {row['events']} events, not completed with {case.events}")
            break
    for task in answer["sample"]:
        problems += _check_fetched(task, stored.fetch(task, case.role), case)
    return problems


def _check_fetched(task: str, found: dict[str, Any], case: Case) -> list[str]:
    if found.get("id") != task or found.get("status", {}).get("state") != "completed":
        return [f"tasks/get {task} gave {str(found)[:120]}"]
    parts = sum(len(artifact["parts"]) for artifact in found.get("artifacts") or [])
    wanted = 1 if case.events == 1 else case.events - 2
    return [] if parts == wanted else [f"task {task} holds {parts} artifact parts, not {wanted}"]


def log_problems(folder: Path) -> list[str]:
    """Warnings and errors in the logs of the measured processes."""
    found = []
    for log in (*folder.glob("*.err"), *folder.glob("nginx.log")):
        lines = [
            line for line in log.read_text().splitlines() if any(w in line for w in ("rror", "arning", "warn", "Traceback"))
        ]
        if lines:
            found.append(f"{log.name} holds {len(lines)} complaints, the first: {lines[0][:200]}")
    return found
