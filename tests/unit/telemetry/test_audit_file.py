"""The audit log's file: what it is given is in it, or it says what is missing, and nobody else has to do with that."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hub.telemetry.audit_file import AuditFile, check, open_audit_file
from rolecall.errors import ConfigError
from rolecall.log import AUDIT

FULL = Path("/dev/full")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


@pytest.fixture
def audit_file(path: Path) -> Iterator[AuditFile]:
    with open_audit_file(path) as audit_file:
        assert audit_file is not None
        yield audit_file


def record(*texts: str) -> None:
    for action in texts:
        logging.getLogger(AUDIT).info(action, extra={"event": action})


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def events(path: Path) -> list[str]:
    return [entry["event"] for entry in entries(path)]


def put_at(path: Path, target: Path) -> None:
    """The path leads there from now on."""
    path.with_name("next").symlink_to(target)
    path.with_name("next").replace(path)


def test_an_entry_is_one_line_behind_what_the_file_holds(path: Path) -> None:
    path.write_text('{"event": "older"}\n')
    with open_audit_file(path):
        record("one\nand its second line", "two")
    record("after the end")
    assert events(path) == ["older", "one\nand its second line", "two"]


def test_without_a_file_no_entry_is_made() -> None:
    with open_audit_file(None) as audit_file:
        assert audit_file is None
        assert not logging.getLogger(AUDIT).isEnabledFor(logging.INFO)


def test_a_file_that_was_renamed_is_followed_by_a_new_one_for_its_owner_alone(path: Path, audit_file: AuditFile) -> None:
    record("one")
    first = path.rename(path.with_name("audit.log.1"))
    record("two")
    assert [events(file) for file in (first, path)] == [["one"], ["two"]]
    assert [file.stat().st_mode & 0o777 for file in (first, path)] == [0o600, 0o600]


def test_the_permissions_of_a_file_that_exists_stay(path: Path) -> None:
    path.touch()
    path.chmod(0o640)
    with open_audit_file(path):
        record("one")
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.parent.rmdir(), "No such file or directory"),
        (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    ],
    ids=["a folder", "no folder", "a loop"],
)
def test_a_file_that_cannot_be_opened_is_a_mistake_in_the_settings(path: Path, make: Any, why: str) -> None:
    path = path.parent / "folder" / path.name
    path.parent.mkdir()
    make(path)
    for refuse in (check, AuditFile):
        with pytest.raises(ConfigError) as refused:
            refuse(path)
        assert refused.value.message == f"audit_log: {path} cannot be opened for writing: {why}."


def test_a_check_creates_and_changes_nothing(path: Path) -> None:
    check(path)
    assert not path.exists()
    path.write_text("older\n")
    check(path)
    assert path.read_text() == "older\n"


def test_an_outage_is_logged_once_counted_and_named_in_the_file_when_it_is_over(
    path: Path, audit_file: AuditFile, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = list[logging.LogRecord]()
    monkeypatch.setattr(audit_file, "handleError", printed.append)  # which prints a traceback
    caplog.set_level(logging.INFO, "hub.telemetry.audit_file")
    record("one")
    first = path.rename(path.with_name("older"))
    put_at(path, FULL)
    record("two", "three")
    assert (audit_file.lost, audit_file.failure) == (2, "No space left on device")
    put_at(path, first)
    record("four")
    assert (audit_file.lost, audit_file.failure) == (2, "")
    assert events(first) == ["one", "entries lost", "four"]
    assert entries(first)[1] | {"at": ""} == {
        "at": "",
        "level": "info",
        "logger": AUDIT,
        "event": "entries lost",
        "count": 2,
        "why": "No space left on device",
    }
    put_at(path, FULL)
    record("five")
    found = [(entry.levelname, vars(entry)["event"]) for entry in caplog.records if entry.name != AUDIT]
    assert found == [("ERROR", "audit_failed"), ("INFO", "audit_written"), ("ERROR", "audit_failed")]
    assert printed == []


def test_an_outage_ends_without_another_entry(path: Path, audit_file: AuditFile) -> None:
    audit_file.retry()
    assert not path.read_text()
    path.unlink()
    path.mkdir()
    record("one")
    audit_file.retry()
    assert audit_file.failure == "Is a directory"
    path.rmdir()
    audit_file.retry()
    assert (audit_file.failure, events(path)) == ("", ["entries lost"])
    audit_file.retry()
    assert events(path) == ["entries lost"]


def test_an_entry_that_was_cut_short_does_not_spoil_the_next(
    path: Path, audit_file: AuditFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, room = os.write, [10, 0, 0]

    def almost_full(file: int, data: bytes) -> int:
        if not room:
            return write(file, data)
        if not (taken := room.pop(0)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:taken])

    monkeypatch.setattr(os, "write", almost_full)
    record("one", "two", "three")
    cut, *whole = path.read_text().splitlines()
    assert len(cut) == 10
    assert [json.loads(line)["event"] for line in whole] == ["entries lost", "three"]
    assert json.loads(whole[0])["count"] == 2


def test_a_pipe_that_nobody_reads_stops_nobody(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with open_audit_file(pipe) as audit_file:
            assert audit_file is not None
            while not audit_file.lost:
                record("x" * 4000)
            assert audit_file.failure
    finally:
        os.close(reader)
