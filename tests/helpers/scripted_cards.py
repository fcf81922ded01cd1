"""A source of cards that plays a script: for what core makes of readings, without sockets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hub.ports.card_source import Address, CardAnswer, Reach
from rolecall.model.a2a import JsonObject
from rolecall.model.card import JSONRPC, Interface
from rolecall.model.worker import CardState, Offer
from tests.helpers.watched_engine import Hold

NOT_THERE = CardAnswer(Reach.ANSWERED, "HTTP 404")
REFUSED = CardAnswer(Reach.REFUSED, "connection refused")
SILENT = CardAnswer(Reach.SILENT, "no card came within 5 s")
NOT_ASKED = CardAnswer(Reach.NOT_ASKED, "the hub has no connection for it")


class ScriptedCards:
    """`answers`: by the URL of the worker, with `@` and its address if it has one: a card or another answer; without one it has
    none. `asked`: each of these.
    """

    def __init__(self) -> None:
        self.answers: dict[str, JsonObject | CardAnswer] = {}
        self.addresses_of: dict[str, Sequence[str] | None] = {}
        """The addresses of each name. Without an entry the host is its own address."""
        self.asked: list[str] = []
        self.known: list[CardState | None] = []
        self.holds: dict[str, Hold] = {}
        self.at_once = self.most_at_once = 0

    def times(self, url: str) -> int:
        return Counter(self.asked)[url]

    async def addresses(self, workspace: str, url: str) -> Sequence[Address] | None:
        found = self.addresses_of.get(url, "")
        if found == "":
            return [Address("", "its-own")]
        return None if found is None else [Address(text, f"{text}-80") for text in found]

    async def read(self, workspace: str, offer: Offer, known: CardState | None) -> CardAnswer:
        url = f"{offer.url}@{offer.address}" if offer.address else offer.url
        self.asked.append(url)
        self.known.append(known)
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            if url in self.holds:
                await self.holds[url].reach()
        finally:
            self.at_once -= 1
        answer = self.answers.get(url, NOT_THERE)
        if isinstance(answer, CardAnswer):
            return answer
        if known is not None and known.etag == etag(answer) and known.url:
            return CardAnswer(Reach.ANSWERED, "", None, known.url, known.etag)
        interfaces = (Interface(offer.url, JSONRPC, "1.0"),)
        found = replace(offer, card=answer, streaming=answer.get("streaming", True), interfaces=interfaces)
        return CardAnswer(Reach.ANSWERED, "", found, f"{offer.url}card", etag(answer))


def etag(card: dict[str, Any]) -> str:
    return f'"{hash(str(card))}"'
