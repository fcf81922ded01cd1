"""The ports of identity: the principals of tokens, and secrets that are unreadable in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rolecall.model.principal import Principal


class TokenEnd(NamedTuple):
    """When a token ends: a time of the wall clock. `id`: its public name."""

    id: str
    holder: str
    workspace: str
    at: float


class Tokens(Protocol):
    """Finds the principal of a token. Plain calls, cheap enough for every request."""

    @property
    def empty(self) -> bool:
        """There are no tokens."""

    @property
    def required(self) -> bool:
        """Every caller needs a token: there are some, or there have been."""

    @property
    def problem(self) -> str:
        """Why the tokens cannot be read, so that none of them is accepted; empty: they can be."""

    def is_valid(self, token_id: str) -> bool:
        """Whether the token with that public id is neither revoked nor expired. True where that cannot be known now."""

    def end_times(self) -> Sequence[TokenEnd]:
        """Of the valid tokens that end some day, the first to end first."""

    def find(self, token: str) -> Principal | None:
        """None: unknown, revoked, expired. Takes the same time in each case."""

    def ended(self, token: str) -> Principal | None:
        """The former holder of a token that `find` does not know, if it has expired, or was revoked lately."""


class Vault(Protocol):
    """Keeps secrets unreadable in the store."""

    def seal(self, secret: bytes) -> bytes: ...
    def open(self, sealed: bytes) -> bytes:
        """SecretUnreadable: sealed under another key, or changed since."""
