"""A change of a feed as one line for people."""

from __future__ import annotations

from datetime import datetime

from rolecall.cli.output import took
from rolecall.model.a2a import PAUSED, JsonObject, TaskState
from rolecall.protocol.text.timestamp import moment

_WORKERS = {
    "enrolled": "+ is ready",
    "changed": "  is {state}",
    "draining": "- is draining",
    "suspect": "! is suspect",
    "failing": "! fails its calls",
    "expired": "- has missed its heartbeats",
    "withdrawn": "- has left",
}
_SHOWN = 200
"""Characters of a question or a reason."""


ShownLine = tuple[str, str | None]
"""A line and its colour."""


def of_worker(change: JsonObject) -> ShownLine:
    """`change`: of GET /registry/events."""
    kind = str(change.get("event"))
    text = _WORKERS.get(kind, f"  {kind}").format(state=change.get("state"))
    reason = f": {change['reason']}" if change.get("reason") else ""
    colour = "green" if kind == "enrolled" else "yellow" if text.startswith(("-", "!")) else None
    return f"{_clock(change.get('at'))}  {change.get('name')} {text[2:]}{reason}", colour


def of_task(change: JsonObject) -> ShownLine | None:
    """`change`: of GET /registry/tasks/events. None: the task goes on, which nobody waits for."""
    task: JsonObject = change["task"]
    state, detail = str(task["state"]), str(change.get("reason") or change.get("detail") or "")
    who = task.get("worker") or task["role"]
    colour = None
    if change.get("event") == "admitted":
        text = "is called" + (f" by task {str(change['parent'])[-4:]}" if change.get("parent") else "")
    elif change.get("event") == "gone":
        text = "answered with a message, or took no call"
    elif state in PAUSED:
        text, colour = f"asks: {task.get('question') or '(no text)'}", "yellow"
    elif state == TaskState.COMPLETED:
        text, colour = f"✓ {took(task)}", "green"
    elif change.get("event") == "ended":
        text, colour = f"✗ {state}{f': {detail}' if detail else ''}", "red"
    else:
        return None
    line = " ".join(text.split())
    line = line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
    return f"{_clock(task.get('updated'))}  {who} {str(task['id'])[-4:]} {line}", colour


def _clock(text: object) -> str:
    """The time of the day here."""
    at = moment(str(text))
    return datetime.fromtimestamp(at).strftime("%H:%M:%S") if at is not None else "--:--:--"
