"""Tokens: who gets in, how a token ends, and what the file holds."""

from __future__ import annotations

import errno
import json
import os
import threading
from ipaddress import ip_network
from pathlib import Path

import pytest

from hub.identity import tokens
from rolecall.errors import StoreError
from rolecall.model.principal import Kind, Principal, Right
from rolecall.system.locks import lock_file, unlock
from tests.helpers.clock import ManualClock

CLIENT = Principal("anna", Kind.CLIENT)
WORKER = Principal("w", Kind.WORKER, "acme", ("code-*", "echo"), (ip_network("10.0.0.0/8"),))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "tokens.json"


def test_a_new_token_is_valid_and_stored_only_as_a_hash(path: Path) -> None:
    token, entry = tokens.new(path, WORKER, lasts=None, now=5.0)
    assert tokens.TokenBook(path).find(token) == WORKER
    assert token.startswith("rc_")
    assert len(token) > 40
    assert token not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert entry.expires is None


@pytest.mark.parametrize("text", ["", "rc_", "rc_" + "x" * 43, "\udcff", "é"])
def test_a_text_that_is_no_token_finds_nobody(path: Path, text: str) -> None:
    tokens.new(path, CLIENT, lasts=None, now=0)
    assert tokens.TokenBook(path).find(text) is None


def test_tokens_of_one_principal_are_revoked_one_by_one_or_all_together(path: Path) -> None:
    clock = ManualClock()
    old, first = tokens.new(path, CLIENT, lasts=None, now=0)
    fresh, _ = tokens.new(path, CLIENT, lasts=None, now=1)
    book = tokens.TokenBook(path, wall=clock.wall, monotonic=clock.monotonic)
    assert book.find(old) == book.find(fresh) == CLIENT
    assert [entry.id for entry in tokens.revoke(path, first.id)] == [first.id]
    clock.advance(1.1)
    assert (book.find(old), book.find(fresh)) == (None, CLIENT)
    assert len(tokens.revoke(path, "anna")) == 1
    assert tokens.revoke(path, "anna") == []
    clock.advance(1.1)
    assert book.find(fresh) is None


def test_an_expired_token_finds_nobody(path: Path) -> None:
    clock = ManualClock()
    token, _ = tokens.new(path, CLIENT, lasts=60, now=clock.wall())
    book = tokens.TokenBook(path, wall=clock.wall, monotonic=clock.monotonic)
    clock.advance(59)
    assert book.find(token) == CLIENT
    clock.advance(2)
    assert book.find(token) is None
    assert not book.empty


def test_a_token_that_was_used_just_before_still_expires_on_time(path: Path) -> None:
    clock = ManualClock()
    token, _ = tokens.new(path, CLIENT, lasts=60, now=clock.wall())
    book = tokens.TokenBook(path, wall=clock.wall, monotonic=clock.monotonic)
    clock.advance(59.5)
    assert book.find(token) == CLIENT
    clock.advance(0.25)
    assert book.find(token) == CLIENT
    clock.advance(0.25)
    assert book.find(token) is None


def test_a_broken_file_neither_grants_nor_revokes_access(path: Path) -> None:
    clock = ManualClock()
    token, _ = tokens.new(path, CLIENT, lasts=None, now=0)
    book = tokens.TokenBook(path, wall=clock.wall, monotonic=clock.monotonic)
    assert book.find(token) == CLIENT
    path.write_text("{")
    clock.advance(2)
    assert book.find(token) == CLIENT
    assert not book.empty
    with pytest.raises(StoreError):
        tokens.read(path)


def test_a_file_that_is_broken_from_the_start_opens_nothing(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("{")
    book = tokens.TokenBook(path)
    assert (book.empty, book.required) == (True, True)


def test_a_file_that_cannot_be_reached_opens_nothing(path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to(path)
    book = tokens.TokenBook(path)
    assert (book.empty, book.required) == (True, True)


@pytest.mark.parametrize("how", ["revoked", "file", "folder"])
def test_tokens_stay_required_when_the_last_one_goes(path: Path, how: str) -> None:
    clock = ManualClock()
    mark = path.with_name(tokens.MARK_NAME)

    def book() -> tokens.TokenBook:
        return tokens.TokenBook(path, mark=mark, wall=clock.wall, monotonic=clock.monotonic)

    running = book()
    assert not running.required
    assert not path.parent.exists()
    token, _ = tokens.new(path, CLIENT, lasts=None, now=0)
    clock.advance(1.1)
    assert running.required
    assert mark.stat().st_mode & 0o777 == 0o600
    assert "rolecall tokens new" in mark.read_text()
    if how == "revoked":
        tokens.revoke(path, "anna")
    else:
        path.unlink()
    if how == "folder":
        mark.unlink()
    clock.advance(1.1)
    assert (running.find(token), running.empty, running.required) == (None, True, True)
    assert book().required == (how != "folder")
    fresh, _ = tokens.new(path, CLIENT, lasts=None, now=1)
    clock.advance(1.1)
    assert (running.find(fresh), running.empty) == (CLIENT, False)


@pytest.mark.parametrize("how", ["a token", "the shared token", "a broken file"])
def test_a_folder_with_tokens_and_without_the_mark_gets_it_at_once(path: Path, how: str) -> None:
    mark = path.with_name(tokens.MARK_NAME)
    tokens.new(path, CLIENT, lasts=None, now=0)
    if how == "the shared token":
        path.unlink()
    if how == "a broken file":
        path.write_text("{")
    assert tokens.TokenBook(path, mark=mark, shared="a-long-shared-token" if how == "the shared token" else None).required
    assert mark.exists()
    path.unlink(missing_ok=True)
    assert tokens.TokenBook(path, mark=mark).required


def test_a_mark_that_cannot_be_written_opens_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    tokens.new(path, CLIENT, lasts=None, now=0)
    book = tokens.TokenBook(path, mark=path / "below a file", monotonic=clock.monotonic)
    for _ in range(3):
        assert book.required
        clock.advance(1.1)
    path.unlink()
    assert book.required
    assert [record.getMessage() for record in caplog.records] == ["the mark that tokens are required cannot be read or written"]


def test_a_token_is_valid_by_its_id_until_it_is_revoked_or_expires(path: Path) -> None:
    clock = ManualClock()
    first = tokens.new(path, CLIENT, lasts=None, now=0)
    second = tokens.new(path, CLIENT, lasts=60, now=clock.wall())
    book = tokens.TokenBook(path, wall=clock.wall, monotonic=clock.monotonic)
    found = book.find(first[0])
    assert found is not None and found.token == first[1].id
    assert [book.is_valid(name) for name in (first[1].id, second[1].id, "unknown", "")] == [True, True, False, True]
    clock.advance(60)
    assert not book.is_valid(second[1].id)
    tokens.revoke(path, first[1].id)
    clock.advance(0.5)
    assert not book.is_valid(first[1].id)


def test_while_the_file_cannot_be_read_no_token_is_taken_for_revoked(path: Path) -> None:
    clock = ManualClock()
    _, entry = tokens.new(path, CLIENT, lasts=None, now=0)
    whole = path.read_text()
    path.write_text("{")
    book = tokens.TokenBook(path, wall=clock.wall, monotonic=clock.monotonic)
    assert book.is_valid(entry.id) and book.is_valid("unknown")
    path.write_text(whole)
    clock.advance(1)
    assert book.is_valid(entry.id) and not book.is_valid("unknown")


def test_without_a_file_only_the_shared_token_is_valid(path: Path) -> None:
    for nothing in (tokens.TokenBook(path), tokens.TokenBook(None), tokens.TokenBook(path, mark=path.with_name("mark"))):
        assert (nothing.empty, nothing.required) == (True, False)
    book = tokens.TokenBook(None, shared="a-long-shared-token")
    assert (book.empty, book.required) == (False, True)
    found = book.find("a-long-shared-token")
    assert found is not None
    assert found.kind is Kind.ADMIN
    assert book.find("another") is None


def test_the_file_is_a_readable_json_document(path: Path) -> None:
    tokens.new(path, WORKER, lasts=10, now=100)
    kept = json.loads(path.read_text())["tokens"][0]
    assert (kept["name"], kept["kind"], kept["workspace"], kept["expires"]) == ("w", "worker", "acme", 110)
    assert (kept["roles"], kept["networks"]) == (["code-*", "echo"], ["10.0.0.0/8"])
    assert [entry.principal for entry in tokens.read(path)] == [WORKER]


@pytest.mark.parametrize(
    ("role", "allowed"),
    [("echo", True), ("echo2", False), ("code-x", True), ("code-", True), ("code", False), ("other", False)],
)
def test_a_worker_may_serve_only_its_roles(role: str, allowed: bool) -> None:
    assert WORKER.may_serve(role) is allowed


def test_each_kind_has_its_rights_and_no_others() -> None:
    rights = {kind: {right for right in Right if Principal("x", kind).may(right)} for kind in Kind}
    assert rights[Kind.ADMIN] == set(Right)
    assert rights[Kind.CLIENT] == {Right.READ, Right.CALL}
    assert rights[Kind.WORKER] == {Right.READ, Right.ENROL}
    assert rights[Kind.READER] == {Right.READ}
    assert not Principal("x", Kind.CLIENT).may_serve("echo")


def test_a_change_waits_for_another_and_not_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens.new(path, CLIENT, lasts=None, now=0)
    held = lock_file(path.with_name(path.name + ".lock"))
    threading.Timer(0.1, unlock, [held]).start()
    tokens.new(path, CLIENT, lasts=None, now=0)
    held = lock_file(path.with_name(path.name + ".lock"))
    monkeypatch.setattr(tokens, "_LOCK_PATIENCE", 0.1)
    with pytest.raises(StoreError, match="being changed by another process"):
        tokens.new(path, CLIENT, lasts=None, now=0)
    unlock(held)
    assert len(tokens.read(path)) == 2


# --- a full disk


def test_a_revocation_on_a_full_disk_is_written_over_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tokens.json"
    kept, _ = tokens.new(path, Principal("kept", Kind.ADMIN), lasts=None, now=0.0)
    gone, _ = tokens.new(path, Principal("gone", Kind.ADMIN), lasts=None, now=0.0)
    book, size = tokens.TokenBook(path, monotonic=iter(range(100)).__next__), path.stat().st_size
    assert book.find(gone) is not None
    sync = os.fsync

    def full(file: int) -> None:
        if os.fstat(file).st_ino != path.stat().st_ino:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(file)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        tokens.new(path, Principal("late", Kind.ADMIN), lasts=None, now=0.0)
    assert [entry.principal.name for entry in tokens.read(path)] == ["kept", "gone"]
    assert [entry.principal.name for entry in tokens.revoke(path, "gone")] == ["gone"]
    assert [entry.principal.name for entry in tokens.read(path)] == ["kept"]
    assert path.stat().st_size == size and not list(tmp_path.glob("*.new"))
    assert book.find(gone) is None and book.find(kept) is not None
