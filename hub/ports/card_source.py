"""The card source port: the cards of agents that enrolled with a URL alone."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from rolecall.model.worker import CardState, Offer


class Reach(Enum):
    """How an agent's server took the question for its card."""

    ANSWERED = "answered"
    """Over HTTP, and not with an error of the server; also where it has no card."""
    REFUSED = "refused"
    """Nothing listens at its address."""
    SILENT = "silent"
    """No answer in time, or an error of the server."""
    NOT_ASKED = "not asked"
    """The hub could not connect, for a reason of its own."""


class CardAnswer(NamedTuple):
    """`offer`: with what the card says; None: there is no card, or it is as before. `url`, `etag`: of the card; an empty URL:
    none was found. `note`: for people, why not, or what of the card the hub does not follow.
    """

    reach: Reach
    note: str = ""
    offer: Offer | None = None
    url: str = ""
    etag: str = ""


class CardSource(Protocol):
    async def read(self, workspace: str, offer: Offer, known: CardState | None) -> CardAnswer:
        """Ask for the card below the offer's URL, then at the root of its server, within seconds, as calls to that worker are
        made: to the same addresses, with the same credential, following no redirect. `known`: of an earlier reading for the
        same URL; a card with its ETag is not read again. Raises nothing: whatever the server does is told by the answer.
        """
