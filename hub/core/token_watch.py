"""Ends what is open in the name of a token, soon after that token was revoked, has expired, or can no longer be checked."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from hub.core.relay.relays import Relays
from hub.ports.identity import Tokens
from hub.ports.state.registry import Registry
from rolecall.errors import StoreUnavailable, WorkerLost

log = logging.getLogger(__name__)

EVERY = 0.5
End = Callable[[], None]


class OpenUses:
    """What callers have open, by the ids of their tokens: of each use, what ends it. A token without an id never ends."""

    def __init__(self) -> None:
        self._by_token: dict[str, dict[End, None]] = {}

    @property
    def tokens(self) -> list[str]:
        return list(self._by_token)

    def add(self, token: str, end: End) -> None:
        if token:
            self._by_token.setdefault(token, {})[end] = None

    def remove(self, token: str, end: End) -> None:
        """No effect if it has been ended."""
        open_uses = self._by_token.get(token)
        if open_uses is not None:
            open_uses.pop(end, None)
            if not open_uses:
                del self._by_token[token]

    def end(self, token: str) -> None:
        for end in self._by_token.pop(token, {}):
            end()


class TokenUse:
    """What is open in the name of a token within the block, for whoever looks now and then whether that has `ended`."""

    def __init__(self, uses: OpenUses, token: str) -> None:
        self._uses = uses
        self._token = token
        self.ended = False

    def __enter__(self) -> None:
        self._uses.add(self._token, self._end)

    def __exit__(self, *exc: object) -> None:
        self._uses.remove(self._token, self._end)

    def _end(self) -> None:
        self.ended = True


class TokenWatch:
    """Every look compares all that there is with the tokens, so nothing is missed between two looks, or while the hub was
    down.
    """

    def __init__(self, tokens: Tokens, uses: OpenUses, registry: Registry, relays: Relays) -> None:
        self._tokens = tokens
        self._uses = uses
        self._registry = registry
        self._relays = relays
        self._seen: set[str] = set()
        """Tokens that were in use. A worker's task may still run when its lease has ended."""
        self._problem = ""
        """Why the tokens cannot be read, as it was logged."""

    async def look(self) -> None:
        """Called every `EVERY` seconds."""
        self._look_at_problem()
        self._seen.update(self._uses.tokens, self._registry.tokens())
        ended = [token for token in self._seen if not self._tokens.is_valid(token)]
        for token in ended:
            self._seen.discard(token)
            log.info("a token has ended", extra={"event": "token_ended", "id": token})
            self._uses.end(token)
            self._registry.expire(token)
            await self._relays.lose(token, _lost)
        if ended:
            with suppress(StoreUnavailable):  # the leases have ended all the same, and are swept again soon
                await self._registry.sweep()

    def _look_at_problem(self) -> None:
        """While the tokens cannot be read, callers keep nothing open. Workers keep their leases as long as they last without a
        heartbeat: the file may be mended before, and a mistake in it must not fail every task.
        """
        problem = self._tokens.problem
        if problem and not self._problem:
            log.error(
                "the token file cannot be used, so none of its tokens is accepted",
                extra={"event": "tokens_unreadable", "why": problem},
            )
        elif self._problem and not problem:
            log.info("the token file can be used again", extra={"event": "tokens_readable"})
        self._problem = problem
        if problem:
            for token in self._uses.tokens:
                self._uses.end(token)


def _lost(worker: object) -> WorkerLost:
    return WorkerLost(f"{worker} may no longer serve: its token was revoked or has expired. What it had not sent is lost.")
