"""Tokens: who gets in, how a token ends, and what the file holds."""

from __future__ import annotations

import errno
import json
import os
import pwd
import threading
from ipaddress import ip_network
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hub.identity import tokens
from rolecall.errors import StoreError
from rolecall.model.principal import Kind, Principal, Right
from rolecall.system.locks import lock_file, unlock
from rolecall.system.owners import Owner, name_of
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


BROKEN = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    "empty": lambda path: path.write_bytes(b""),
    "no text": lambda path: path.write_bytes(b"\xff\xfe{"),
    "other JSON": lambda path: path.write_bytes(b'["tokens"]'),
    "deep": lambda path: path.write_bytes(b"[" * 200_000),
    "a number too large": lambda path: path.write_bytes(
        path.read_bytes().replace(b'"created": 0', b'"created": 1' + b"0" * 400)
    ),
    "unreadable": lambda path: (path.unlink(), path.symlink_to(path)),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("how", BROKEN)
def test_the_tokens_of_a_file_that_cannot_be_used_are_refused_but_not_while_it_is_replaced(path: Path, how: str) -> None:
    clock = ManualClock()
    token, entry = tokens.new(path, CLIENT, lasts=None, now=0)
    whole = path.read_bytes()
    book = tokens.TokenBook(path, shared="a-long-shared-token", wall=clock.wall, monotonic=clock.monotonic)
    for _ in range(2):
        assert (book.find(token), book.problem) == (CLIENT, "")
        BROKEN[how](path)
        for _ in range(3):
            clock.advance(0.6)
            assert (book.find(token), book.problem, book.is_valid(entry.id)) == (CLIENT, "", True)
        path.unlink(missing_ok=True)
        path.write_bytes(whole)
        clock.advance(0.6)
    assert book.find(token) == CLIENT
    BROKEN[how](path)
    for _ in range(5):
        clock.advance(0.6)
        book.find(token)
    assert book.find(token) is None and str(path) in book.problem
    # What runs may go on: whether its token is among the revoked ones nobody knows.
    assert (book.required, book.is_valid(entry.id), book.is_valid("unknown")) == (True, True, True)
    assert book.find("a-long-shared-token") is not None
    path.unlink(missing_ok=True)
    path.write_bytes(whole)
    clock.advance(0.6)
    assert (book.find(token), book.problem, book.is_valid("unknown")) == (CLIENT, "", False)


def test_a_revocation_in_a_file_that_was_broken_meanwhile_is_not_missed(path: Path) -> None:
    clock = ManualClock()
    token, entry = tokens.new(path, CLIENT, lasts=None, now=0)
    tokens.new(path, WORKER, lasts=None, now=0)
    book = tokens.TokenBook(path, wall=clock.wall, monotonic=clock.monotonic)
    assert book.find(token) == CLIENT
    whole = path.read_bytes()
    path.write_bytes(b"{")
    for _ in range(5):
        clock.advance(0.6)
        book.find(token)
    path.write_bytes(whole)
    tokens.revoke(path, entry.id)
    clock.advance(0.6)
    assert (book.find(token), book.is_valid(entry.id)) == (None, False)


def test_a_file_that_comes_back_as_it_was_has_no_problem_any_more(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    tokens.new(path, CLIENT, lasts=None, now=0)
    stamps = iter([(1, 1, 1, 1), None, (1, 1, 1, 1)])
    monkeypatch.setattr(tokens, "_stamp", lambda path: next(stamps))
    book = tokens.TokenBook(path, wall=clock.wall, monotonic=clock.monotonic)
    assert not book.is_valid("unknown")
    clock.advance(0.6)
    assert book.is_valid("unknown")
    clock.advance(0.6)
    assert not book.is_valid("unknown")


def test_a_change_of_the_permissions_alone_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    token, _ = tokens.new(path, CLIENT, lasts=None, now=0)
    book = tokens.TokenBook(path, wall=clock.wall, monotonic=clock.monotonic)
    assert book.find(token) == CLIENT
    path.chmod(0o640)
    monkeypatch.setattr(Path, "read_bytes", unreadable)
    for _ in range(5):
        clock.advance(0.6)
        book.find(token)
    user = name_of(os.geteuid())
    cause = f"{path} cannot be read: Permission denied. It belongs to {user}, and this process runs as {user}."
    assert (book.find(token), book.problem) == (None, cause)


def unreadable(path: Path) -> bytes:
    raise PermissionError(errno.EACCES, "Permission denied", str(path))


def test_changes_of_the_file_are_reported_and_what_it_held_at_first_is_not(path: Path) -> None:
    clock, changes = ManualClock(), list[tuple[str, str]]()
    _, kept = tokens.new(path, CLIENT, lasts=None, now=0)
    gone, revoked = tokens.new(path, CLIENT, lasts=None, now=0)

    def report(change: tokens.TokenChange, entry: tokens.TokenEntry) -> None:
        changes.append((change.value, entry.id))

    book = tokens.TokenBook(path, on_change=report, wall=clock.wall, monotonic=clock.monotonic)
    assert book.find(gone) == CLIENT and changes == []
    tokens.revoke(path, revoked.id)
    _, fresh = tokens.new(path, WORKER, lasts=None, now=0)
    path.write_text(path.read_text().replace('"echo"', '"planner"', 1))
    clock.advance(0.6)
    assert (book.find(gone), book.required) == (None, True)
    assert changes == [("token revoked", revoked.id), ("token created", fresh.id)]
    path.write_text(path.read_text().replace('"planner"', '"echo"', 1))
    clock.advance(0.6)
    assert book.required and changes[2:] == [("token changed", fresh.id)]
    assert kept.id not in dict(changes).values()


def test_a_token_that_was_valid_once_is_told_from_one_that_never_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    gone, _ = tokens.new(path, CLIENT, lasts=None, now=0)
    old, _ = tokens.new(path, WORKER, lasts=1, now=clock.wall())
    book = tokens.TokenBook(path, wall=clock.wall, monotonic=clock.monotonic)
    assert book.find(gone) == CLIENT
    tokens.revoke(path, "anna")
    clock.advance(2)
    assert (book.find(gone), book.find(old)) == (None, None)
    assert (book.ended(gone), book.ended(old), book.ended("rc_never")) == (CLIENT, WORKER, None)
    monkeypatch.setattr(tokens, "_MOST_REVOKED", 0)
    tokens.revoke(path, "w")
    clock.advance(2)
    assert (book.find(old), book.ended(gone), book.ended(old)) == (None, None, None)


def test_a_file_that_is_broken_from_the_start_opens_nothing(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("{")
    book = tokens.TokenBook(path)
    assert (book.empty, book.required) == (True, True)
    assert book.problem == f"{path} is not a token file. Restore it from a backup, or delete it and make new tokens."


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
    clock.advance(0.6)
    assert (running.find(token) == CLIENT) is (how != "revoked")  # the file may be being replaced
    clock.advance(2)
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


# --- whose the file is

SOMEBODY = pwd.getpwnam("nobody")
_as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def owner(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid, found.st_mode & 0o777


def lock_of(path: Path) -> Path:
    return path.with_name("tokens.json.lock")


@_as_root
def test_what_root_changes_stays_the_hubs(path: Path) -> None:
    path.parent.mkdir()
    os.chown(path.parent, SOMEBODY.pw_uid, SOMEBODY.pw_gid)
    _, entry = tokens.new(path, CLIENT, lasts=None, now=0)
    assert owner(path) == owner(lock_of(path)) == (SOMEBODY.pw_uid, SOMEBODY.pw_gid, 0o600)
    os.chown(path, 0, SOMEBODY.pw_gid)
    os.chown(lock_of(path), 0, 0)  # as an older version has left it
    path.chmod(0o640)
    tokens.new(path, CLIENT, lasts=None, now=0)
    assert owner(path) == (0, SOMEBODY.pw_gid, 0o640) and owner(lock_of(path))[1] == SOMEBODY.pw_gid
    lock_of(path).write_text("of somebody else")
    os.chown(lock_of(path), 0, 0)
    assert tokens.revoke(path, "w") == [] and owner(lock_of(path))[:2] == (0, 0)
    assert tokens.revoke(path, entry.id) and owner(path) == (0, SOMEBODY.pw_gid, 0o640)


def test_the_permissions_of_the_file_stay_and_a_new_one_is_for_its_owner_alone(path: Path) -> None:
    tokens.new(path, CLIENT, lasts=None, now=0)
    assert owner(path) == (os.geteuid(), path.stat().st_gid, 0o600)
    path.chmod(0o644)
    assert tokens.revoke(path, "anna") and owner(path)[2] == 0o644


def test_a_file_of_another_user_is_left_as_it_is_rather_than_taken_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens.new(path, CLIENT, lasts=None, now=0)
    before = path.read_bytes()

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    other = path.stat().st_uid + 1
    monkeypatch.setattr(os, "fchown", refuse)
    monkeypatch.setattr(tokens, "owner_of", lambda _: Owner(other, 0, 0o600))
    with pytest.raises(StoreError, match="Run it as"):
        tokens.revoke(path, "anna")
    assert path.read_bytes() == before and not list(path.parent.glob("*.new"))


@pytest.mark.parametrize("name", ["tokens.json.new", "tokens.json.lock"])
def test_no_link_leads_root_to_another_file(path: Path, tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    other.write_text("whole")
    path.parent.mkdir()
    path.with_name(name).symlink_to(other)
    if name.endswith("lock"):
        with pytest.raises(StoreError, match="cannot be changed"):
            tokens.new(path, CLIENT, lasts=None, now=0)
    else:
        tokens.new(path, CLIENT, lasts=None, now=0)
        assert not path.is_symlink() and len(tokens.read(path)) == 1
    assert (other.read_text(), owner(other)[0]) == ("whole", os.geteuid())


def test_a_link_that_appears_at_the_last_moment_is_not_followed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.write_text("whole")
    path.parent.mkdir()
    path.with_name("tokens.json.new").symlink_to(other)
    monkeypatch.setattr(tokens, "delete", lambda file: None)
    with pytest.raises(StoreError, match="File exists"):
        tokens.new(path, CLIENT, lasts=None, now=0)
    assert other.read_text() == "whole"


@_as_root
@pytest.mark.parametrize(
    ("mode", "of_group", "folder", "readable"),
    [
        (0o600, False, 0o755, False),
        (0o640, False, 0o755, False),
        (0o640, True, 0o755, True),
        (0o644, False, 0o755, True),
        (0o644, False, 0o700, False),
    ],
)
def test_a_file_that_the_hubs_user_cannot_read_is_found(mode: int, of_group: bool, folder: int, readable: bool) -> None:
    with TemporaryDirectory(dir="/tmp") as name:
        top = Path(name)
        top.chmod(0o755)
        file, data = top / "etc" / "tokens.json", top / "data"
        tokens.new(file, CLIENT, lasts=None, now=0)
        os.chown(file, 0, SOMEBODY.pw_gid if of_group else 0)
        file.chmod(mode)
        file.parent.chmod(folder)
        data.mkdir()
        assert tokens.kept_from(file, data) is None  # a hub of root reads everything
        (data / tokens.MARK_NAME).touch()
        os.chown(data / tokens.MARK_NAME, SOMEBODY.pw_uid, SOMEBODY.pw_gid)
        assert tokens.kept_from(file, data) == (None if readable else "nobody")
        assert tokens.kept_from(file, top / "none") is None
