"""The tokens port: who a token belongs to."""

from __future__ import annotations

from typing import Protocol

from rolecall.model.principal import Principal


class Tokens(Protocol):
    """Who a token belongs to. Plain calls, cheap enough for every request."""

    @property
    def empty(self) -> bool:
        """There are none, so nobody can be asked for one."""

    def find(self, token: str) -> Principal | None:
        """None: unknown, revoked, expired. Takes the same time for each."""
