"""Log lines: readable text on a terminal, one JSON object per line elsewhere.

A line is an event with facts: `log.info("worker enrolled", extra={"worker": "echo:a"})`. Where the text may change, the extra
`event` is a stable name for programs. Facts are ids, sizes, states and times; never message contents, never a token. Secrets
that are logged by mistake are masked here, and control characters are escaped, so that no text can forge a line.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import threading
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import IO, Any

log = logging.getLogger(__name__)

AUDIT = "rolecall.audit"
"""The logger of the audit trail."""
SCOPE: ContextVar[Mapping[str, str]] = ContextVar("facts of all that is logged in this context")
"""JSON lines have them as members. Text lines name in words what they are about."""
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "event", "color_message"}
_SECRET = frozenset(
    ("token", "tokens", "secret", "password", "authorization", "cookie", "set_cookie", "api_key", "lease", "credentials")
) | frozenset(("text", "body", "params", "payload", "content", "prompt"))
_MASKS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',;]+"), r"\1 ***"),
    (
        re.compile(r"(?i)\b((?:proxy-)?authorization|cookie|x-api-key)(\"?'?\s*[:=]\s*\"?'?)(?!bearer|basic)[^\s\"',;]+"),
        r"\1\2***",
    ),
    (re.compile(r"(?i)\b(token|secret|password|lease|api_key)(\"?'?\s*[:=]\s*\"?'?)[^\s\"',;&}]+"), r"\1\2***"),
    (re.compile(r"\b(rc_|whsec_)[A-Za-z0-9_+/=-]{16,}"), r"\1***"),
    (re.compile(r"(?<=://)[^/@\s]+@"), "***@"),
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_COLOURS = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "31;1"}
# Libraries whose lower levels log requests, SQL arguments, or a line per call.
_QUIET = ("hypercorn.access", "hypercorn.error", "hpack", "quart", "aiosqlite", "httpx", "httpcore", "asyncio")


def scope_of(worker: str) -> Mapping[str, str]:
    """`role:instance`, as the scope of what is logged about it. Empty: none."""
    role, _, instance = worker.partition(":")
    return {"role": role, "instance": instance} if worker else {}


def setup(level: str = "info", format: str = "auto", stream: IO[str] | None = None) -> None:
    """Log to `stream` (stderr). Call it before importing a module that adds its own handlers."""
    stream = sys.stderr if stream is None else stream
    terminal = stream.isatty()
    console = format == "console" or (format == "auto" and terminal)
    handler = logging.StreamHandler(stream)
    # An older console of Windows would print the codes.
    colour = terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb" and sys.platform != "win32"
    handler.setFormatter(ConsoleFormatter(colour) if console else JsonFormatter())
    root = logging.getLogger()
    for old in tuple(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _QUIET:
        library = logging.getLogger(name)
        library.setLevel(logging.WARNING)
        library.handlers.clear()
        library.propagate = True


def log_python_errors() -> None:
    """What Python itself would print to stderr becomes a line of the log, for a process that writes nothing else."""
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a line that cannot be written has nowhere to go
    threading.excepthook = _log_of_thread
    sys.unraisablehook = _log_ignored


def _log_of_thread(error: threading.ExceptHookArgs) -> None:
    where = error.thread.name if error.thread is not None else "unknown"
    failure = error.exc_value or error.exc_type()
    log.error("a thread failed", exc_info=failure, extra={"event": "thread_failed", "name_of_thread": where})


def _log_ignored(error: sys.UnraisableHookArgs) -> None:
    text = error.err_msg or "an exception was ignored"
    log.error(text, exc_info=error.exc_value, extra={"event": "exception_ignored", "in": repr(error.object)[:200]})


def setup_unless_done(level: str = "info", format: str = "auto") -> None:
    """The same for a worker, whose module may have set up its own log: then that stays."""
    if not logging.getLogger().handlers:
        setup(level, format)


class JsonFormatter(logging.Formatter):
    """One object per line: `at`, `level`, `logger`, `event`, `message` if it differs from `event`, then the facts."""

    def format(self, record: logging.LogRecord) -> str:
        text = _text(record)
        event = masked(str(record.__dict__.get("event", text)))
        line = {"at": _instant(record), "level": record.levelname.lower(), "logger": record.name, "event": event}
        if event != text:
            line["message"] = text
        for name, value in {**SCOPE.get({}), **_facts(record)}.items():
            line.setdefault(name, value)
        failure = _failure(record)
        if failure:
            line["exception"] = failure
        return json.dumps(line, separators=(", ", ": "))


class ConsoleFormatter(logging.Formatter):
    """`12:34:56 warning  event  fact=value …`"""

    def __init__(self, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = f"{record.levelname.lower():<8}"
        code = _COLOURS.get(record.levelname)
        if self._colour and code:
            level = f"\x1b[{code}m{level}\x1b[0m"
        facts = "".join(f"  {name}={_escaped(str(value))}" for name, value in _facts(record).items())
        lines = "".join(f"\n    {_escaped(line)}" for line in _failure(record).splitlines())
        return f"{clock} {level} {_escaped(_text(record))}{facts}{lines}"


def _text(record: logging.LogRecord) -> str:
    try:
        return masked(record.getMessage())
    except (TypeError, ValueError, KeyError):
        return masked(str(record.msg))


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    return {
        name: "***" if name.lower() in _SECRET else _plain(value)
        for name, value in record.__dict__.items()
        if name not in _STANDARD and value is not None
    }


def _plain(value: object) -> Any:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple | set | frozenset) and len(value) <= 50 and not hasattr(value, "_fields"):
        return [masked(str(item)) for item in value]
    return masked(str(value))


def _failure(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[0] is None:
        return masked(record.stack_info or "")
    return masked(logging.Formatter().formatException(record.exc_info))


def _instant(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda match: repr(match.group())[1:-1], text)


def masked(text: str) -> str:
    """`text` with credentials replaced by ***."""
    for pattern, replacement in _MASKS:
        text = pattern.sub(replacement, text)
    return text
