"""The card source port: where agents are of which the hub knows the URL alone, and their cards."""

from __future__ import annotations

from collections.abc import Sequence
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


class Address(NamedTuple):
    """One of a URL's host. `text` is empty if that is the host itself. `label`: address and port, as an instance's name."""

    text: str
    label: str


class CardSource(Protocol):
    async def addresses(self, workspace: str, url: str) -> Sequence[Address] | None:
        """Where the host of that URL is now: at addresses that the hub may call. None: that cannot be said now, because its
        name does not resolve, an address of it is not allowed, or the hub has no room for the lookup.
        """

    async def read(self, workspace: str, offer: Offer, known: CardState | None) -> CardAnswer:
        """Ask for the card below the offer's URL, then at the root of its server, within seconds, as calls to that worker are
        made: to the same addresses, with the same credential, following no redirect. `known`: of an earlier reading for the
        same URL; a card with its ETag is not read again. Raises nothing: whatever the server does is told by the answer.
        """
