"""The vault port: keeps secrets unreadable in the store."""

from __future__ import annotations

from typing import Protocol


class Vault(Protocol):
    """Keeps secrets unreadable in the store."""

    def seal(self, secret: bytes) -> bytes: ...
    def open(self, sealed: bytes) -> bytes:
        """SecretUnreadable: sealed under another key, or changed since."""
