"""Log lines: always one line per record, and never a secret."""

from __future__ import annotations

import contextvars
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rolecall import log as telemetry_log


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def _json_lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def _set_up(level: str = "debug") -> io.StringIO:
    stream = io.StringIO()
    telemetry_log.setup(level, "auto", stream)
    return stream


def test_without_a_terminal_a_record_is_one_json_object() -> None:
    stream = _set_up()
    logging.getLogger("hub.core").info("worker enrolled", extra={"worker": "echo:a", "epoch": 3, "took": 0.25})
    (line,) = _json_lines(stream)
    assert line["event"] == "worker enrolled"
    assert (line["worker"], line["epoch"], line["took"]) == ("echo:a", 3, 0.25)
    assert (line["level"], line["logger"]) == ("info", "hub.core")
    assert str(line["at"]).endswith("Z")


@pytest.mark.parametrize("message", ["a\nb", "a\r\nb", "\x1b[31mred", "\x00", "\u2028", "\ud800", 'say "hi"', "%s %d", "\x85"])
def test_control_characters_in_a_message_or_fact_do_not_break_the_line(message: str) -> None:
    stream = _set_up()
    logging.getLogger("x").warning(message, extra={"fact": message, "odd": {"k": message}, "many": [message]})
    assert stream.getvalue().count("\n") == 1
    (line,) = _json_lines(stream)
    assert line["event"] == line["fact"] == message
    assert "\x1b" not in stream.getvalue()
    stream.getvalue().encode()


def test_a_message_with_mismatched_arguments_is_still_logged() -> None:
    stream = _set_up()
    logging.getLogger("x").warning("%d things", "three")
    assert _json_lines(stream)[0]["event"] == "%d things"


def test_an_event_can_have_a_name_that_differs_from_its_text() -> None:
    stream = _set_up()
    logging.getLogger("x").info("going down with %d tasks", 3, extra={"event": "draining"})
    (line,) = _json_lines(stream)
    assert (line["event"], line["message"]) == ("draining", "going down with 3 tasks")


def test_json_lines_have_the_facts_of_their_scope_and_text_lines_have_not() -> None:
    context = contextvars.copy_context()
    context.run(telemetry_log.SCOPE.set, {"role": "echo", "task": "t1"})
    stream = _set_up()
    context.run(logging.getLogger("mine").info, "step", extra={"task": "other"})
    logging.getLogger("mine").info("outside")
    inside, outside = _json_lines(stream)
    assert (inside["role"], inside["task"]) == ("echo", "other")
    assert "role" not in outside
    terminal = _Terminal()
    telemetry_log.setup("info", "auto", terminal)
    context.run(logging.getLogger("mine").info, "step")
    assert "echo" not in terminal.getvalue()


def test_a_fact_cannot_replace_a_standard_member() -> None:
    stream = _set_up()
    logging.getLogger("x").info("done", extra={"level": "fake", "at": "never", "logger": "x", "size": float("inf")})
    (line,) = _json_lines(stream)
    assert (line["level"], line["event"], line["size"]) == ("info", "done", "inf")
    assert line["at"] != "never"


@pytest.mark.parametrize(
    "message",
    [
        "Authorization: Bearer s3cr3t",
        "header {'authorization': 'Basic s3cr3t'}",
        "x-api-key=s3cr3t",
        "connect to postgres://user:s3cr3t@db/x failed",
        "GET /x?token=s3cr3t&y=1",
        '{"lease": "s3cr3t", "epoch": 1}',
        "Cookie: s3cr3t",
    ],
)
def test_secrets_are_masked_in_messages_facts_and_tracebacks(message: str) -> None:
    stream = _set_up()
    logging.getLogger("x").info(message)
    logging.getLogger("x").info("fact", extra={"url": message, "many": [message]})
    try:
        raise ValueError(message)
    except ValueError:
        logging.getLogger("x").exception("broke")
    assert "s3cr3t" not in stream.getvalue()
    assert len(_json_lines(stream)) == 3


def test_facts_with_the_name_of_a_secret_are_masked() -> None:
    stream = _set_up()
    logging.getLogger("x").info("sent", extra={"token": "abc123", "text": "dear diary", "lease": "abc123", "size": 10})
    assert "abc123" not in stream.getvalue()
    assert "diary" not in stream.getvalue()
    assert _json_lines(stream)[0]["size"] == 10


def test_a_terminal_gets_readable_lines_with_control_characters_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = _Terminal()
    telemetry_log.setup("info", "auto", stream)
    logging.getLogger("x").warning("over\x1b[2Jhere\nforged", extra={"worker": "echo:a"})
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert "warning" in text
    assert r"over\x1b[2Jhere\nforged  worker=echo:a" in text


def test_format_and_colour_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = _Terminal()
    telemetry_log.setup("info", "json", terminal)
    logging.getLogger("x").warning("a")
    assert json.loads(terminal.getvalue())["event"] == "a"
    terminal = _Terminal()
    telemetry_log.setup("info", "auto", terminal)
    logging.getLogger("x").warning("a")
    assert "\x1b[33mwarning" in terminal.getvalue()


def test_libraries_do_not_log_requests_or_sql() -> None:
    stream = _set_up("debug")
    for name in ("hypercorn.access", "aiosqlite", "httpx"):
        logging.getLogger(name).info("select a secret")
    logging.getLogger("hub").debug("mine")
    assert [line["event"] for line in _json_lines(stream)] == ["mine"]


def test_setup_called_twice_writes_every_line_once() -> None:
    _set_up()
    stream = _set_up()
    logging.getLogger("x").info("a")
    assert len(_json_lines(stream)) == 1


def test_what_python_prints_itself_becomes_lines_of_the_log() -> None:
    """In a process of its own, since it is for the whole process."""
    script = """
import threading, warnings
from rolecall import log
log.setup("info", "json")
log.log_python_errors()

class Bad:
    def __del__(self):
        raise ValueError("in a finalizer")

def fail():
    raise KeyError("in a thread")

Bad()
thread = threading.Thread(target=fail, name="worker thread")
thread.start()
thread.join()
warnings.warn("a warning")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.stdout == ""
    assert [line["event"] for line in lines[:2]] == ["exception_ignored", "thread_failed"]
    assert ["in a finalizer" in lines[0]["exception"], "in a thread" in lines[1]["exception"]] == [True, True]
    assert lines[1]["name_of_thread"] == "worker thread"
    assert "a warning" in lines[2]["event"]
