"""Seals secrets before they reach a store: AES-256-GCM under one key of the hub. Implements ports.Vault."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rolecall.errors import SecretUnreadable, StoreError

KEY_FILE = "secret.key"
_KEY_SIZE = 32
_VERSION = b"\x01"
_NONCE_SIZE = 12


class SealingVault:
    """What is sealed twice looks different each time."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def seal(self, secret: bytes) -> bytes:
        nonce = os.urandom(_NONCE_SIZE)
        return _VERSION + nonce + self._cipher.encrypt(nonce, secret, _VERSION)

    def open(self, sealed: bytes) -> bytes:
        version, nonce, rest = sealed[:1], sealed[1 : 1 + _NONCE_SIZE], sealed[1 + _NONCE_SIZE :]
        if version != _VERSION or len(nonce) < _NONCE_SIZE:
            raise SecretUnreadable
        try:
            return self._cipher.decrypt(nonce, rest, _VERSION)
        except InvalidTag:
            raise SecretUnreadable from None


def key_from(text: str) -> bytes:
    """The key that a setting stands for. The text must be long and random: it is not stretched."""
    return hashlib.sha256(b"rolecall secret key\0" + text.encode()).digest()


def random_key() -> bytes:
    return os.urandom(_KEY_SIZE)


def kept_key(folder: Path) -> bytes:
    """The key in that folder, made on first use. StoreError: there is one, and it cannot be used."""
    path = folder / KEY_FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _make(path)
        key = base64.b64decode(path.read_bytes(), validate=False)
    except (OSError, ValueError) as error:
        raise StoreError(f"The key {path} cannot be read or written: {_why(error)}.") from error
    if len(key) != _KEY_SIZE:
        raise StoreError(f"{path} holds no key. Put back the one that was there: what it sealed cannot be read without it.")
    return key


def _make(path: Path) -> None:
    """Whole or not at all, and on the disk before anything is sealed with it."""
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, base64.b64encode(random_key()) + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)
    os.rename(draft, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _why(error: Exception) -> str:
    return error.strerror or "unknown" if isinstance(error, OSError) else "it is not Base64"
