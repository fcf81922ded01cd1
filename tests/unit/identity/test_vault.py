"""Secrets at rest: unreadable without the key; a damaged one is refused."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hub.identity.vault import KEY_FILE, SealingVault, kept_key, key_from, random_key
from rolecall.errors import SecretUnreadable, StoreError


@pytest.fixture
def vault() -> SealingVault:
    return SealingVault(random_key())


@pytest.mark.parametrize("secret", [b"", b"token", b"\x00\xff" * 2048])
def test_a_sealed_secret_can_be_opened(vault: SealingVault, secret: bytes) -> None:
    assert vault.open(vault.seal(secret)) == secret


def test_sealed_bytes_hide_the_secret_and_differ_each_time(vault: SealingVault) -> None:
    first, second = vault.seal(b"a secret token"), vault.seal(b"a secret token")
    assert first != second
    assert b"secret" not in first


def test_another_key_opens_nothing(vault: SealingVault) -> None:
    with pytest.raises(SecretUnreadable):
        SealingVault(random_key()).open(vault.seal(b"token"))


def test_every_changed_byte_is_detected(vault: SealingVault) -> None:
    sealed = vault.seal(b"token")
    for at in range(len(sealed)):
        with pytest.raises(SecretUnreadable):
            vault.open(sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :])


@pytest.mark.parametrize("sealed", [b"", b"\x01", b"\x01" + b"x" * 11, b"\x02" + b"x" * 40, b"plain text"])
def test_bytes_that_were_never_sealed_are_refused(vault: SealingVault, sealed: bytes) -> None:
    with pytest.raises(SecretUnreadable):
        vault.open(sealed)


def test_the_same_text_gives_the_same_key_and_another_text_another_key() -> None:
    sealed = SealingVault(key_from("x" * 32)).seal(b"token")
    assert SealingVault(key_from("x" * 32)).open(sealed) == b"token"
    with pytest.raises(SecretUnreadable):
        SealingVault(key_from("y" * 32)).open(sealed)


def test_a_key_is_created_once_and_readable_only_by_its_owner(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    first = kept_key(folder)
    assert kept_key(folder) == first
    assert kept_key(tmp_path / "other") != first
    assert stat.S_IMODE((folder / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == [KEY_FILE]


def test_a_start_after_a_crash_during_key_creation_creates_the_key(tmp_path: Path) -> None:
    (tmp_path / f"{KEY_FILE}.new").write_bytes(b"half")
    assert len(kept_key(tmp_path)) == 32


@pytest.mark.parametrize("content", [b"", b"c2hvcnQ=", b"\xff\xfe"])
def test_a_damaged_key_is_not_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / KEY_FILE).write_bytes(content)
    with pytest.raises(StoreError):
        kept_key(tmp_path)
    assert (tmp_path / KEY_FILE).read_bytes() == content


def test_an_unusable_folder_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"secret\.key"):
        kept_key(tmp_path / "file")
