from __future__ import annotations

import json
from ipaddress import ip_network
from pathlib import Path

import pytest

from hub.identity import tokens
from rolecall.errors import StoreError
from rolecall.model.principal import Kind, Principal, Right
from tests.helpers.clock import MovableClock

ANNA = Principal("anna", Kind.CLIENT)
WORKER = Principal("w", Kind.WORKER, "acme", ("code-*", "echo"), (ip_network("10.0.0.0/8"),))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "tokens.json"


def test_a_new_token_opens_and_is_kept_as_a_hash_only(path: Path) -> None:
    token, entry = tokens.new(path, WORKER, lasts=None, now=5.0)
    assert tokens.TokenBook(path).find(token) == WORKER
    assert token.startswith("rc_")
    assert len(token) > 40
    assert token not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert entry.expires is None


@pytest.mark.parametrize("wrong", ["", "rc_", "rc_" + "x" * 43, "\udcff", "é"])
def test_what_is_no_token_opens_nothing(path: Path, wrong: str) -> None:
    tokens.new(path, ANNA, lasts=None, now=0)
    assert tokens.TokenBook(path).find(wrong) is None


def test_several_tokens_of_one_holder_are_valid_at_a_time_and_end_one_by_one_or_together(path: Path) -> None:
    clock = MovableClock()
    old, first = tokens.new(path, ANNA, lasts=None, now=0)
    fresh, _ = tokens.new(path, ANNA, lasts=None, now=1)
    book = tokens.TokenBook(path, wall=clock.wall, monotonic=clock.monotonic)
    assert book.find(old) == book.find(fresh) == ANNA
    assert [entry.id for entry in tokens.revoke(path, first.id)] == [first.id]
    clock.advance(1.1)
    assert (book.find(old), book.find(fresh)) == (None, ANNA)
    assert len(tokens.revoke(path, "anna")) == 1
    assert tokens.revoke(path, "anna") == []
    clock.advance(1.1)
    assert book.find(fresh) is None


def test_a_token_that_has_expired_opens_nothing(path: Path) -> None:
    clock = MovableClock()
    token, _ = tokens.new(path, ANNA, lasts=60, now=clock.wall())
    book = tokens.TokenBook(path, wall=clock.wall, monotonic=clock.monotonic)
    clock.advance(59)
    assert book.find(token) == ANNA
    clock.advance(2)
    assert book.find(token) is None
    assert not book.empty


def test_a_token_that_was_shown_just_now_expires_all_the_same(path: Path) -> None:
    clock = MovableClock()
    token, _ = tokens.new(path, ANNA, lasts=60, now=clock.wall())
    book = tokens.TokenBook(path, wall=clock.wall, monotonic=clock.monotonic)
    clock.advance(59.5)
    assert book.find(token) == ANNA
    clock.advance(0.25)
    assert book.find(token) == ANNA
    clock.advance(0.25)
    assert book.find(token) is None


def test_a_file_that_breaks_shuts_nobody_out_and_lets_nobody_in(path: Path) -> None:
    clock = MovableClock()
    token, _ = tokens.new(path, ANNA, lasts=None, now=0)
    book = tokens.TokenBook(path, wall=clock.wall, monotonic=clock.monotonic)
    assert book.find(token) == ANNA
    path.write_text("{")
    clock.advance(2)
    assert book.find(token) == ANNA
    assert not book.empty
    with pytest.raises(StoreError):
        tokens.read(path)


def test_without_a_file_there_is_only_the_shared_token(path: Path) -> None:
    assert tokens.TokenBook(path).empty
    assert tokens.TokenBook(None).empty
    book = tokens.TokenBook(None, shared="a-long-shared-token")
    assert not book.empty
    found = book.find("a-long-shared-token")
    assert found is not None
    assert found.kind is Kind.ADMIN
    assert book.find("another") is None


def test_the_file_is_one_json_document_that_people_can_read(path: Path) -> None:
    tokens.new(path, WORKER, lasts=10, now=100)
    kept = json.loads(path.read_text())["tokens"][0]
    assert (kept["name"], kept["kind"], kept["workspace"], kept["expires"]) == ("w", "worker", "acme", 110)
    assert (kept["roles"], kept["networks"]) == (["code-*", "echo"], ["10.0.0.0/8"])
    assert [entry.principal for entry in tokens.read(path)] == [WORKER]


@pytest.mark.parametrize(
    ("role", "may"), [("echo", True), ("echo2", False), ("code-x", True), ("code-", True), ("code", False), ("other", False)]
)
def test_a_worker_serves_its_roles_only(role: str, may: bool) -> None:
    assert WORKER.may_serve(role) is may


def test_each_kind_may_do_what_it_is_for() -> None:
    rights = {kind: {right for right in Right if Principal("x", kind).may(right)} for kind in Kind}
    assert rights[Kind.ADMIN] == set(Right)
    assert rights[Kind.CLIENT] == {Right.READ, Right.CALL}
    assert rights[Kind.WORKER] == {Right.READ, Right.ENROL}
    assert rights[Kind.READER] == {Right.READ}
    assert not Principal("x", Kind.CLIENT).may_serve("echo")
