"""Reads the cards of workers. Implements ports.CardSource.

What a server answers is untrusted: it is bounded in bytes, depth and time, and of what it sends only a valid card is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from sys import maxsize
from typing import NamedTuple

from hub.outbound.client import Client
from hub.outbound.connection import NO_HEADERS, Response
from hub.outbound.credential import authorization_for
from hub.outbound.url import BadUrl, literal, read_url
from hub.outbound.worker_guard import Guard, NotAllowed
from hub.ports.card_source import Address, CardAnswer, Reach
from hub.ports.identity import Vault
from rolecall.errors import CredentialRefused, HubError, InvalidAnswer, OfferInvalid, Overloaded, WorkerBroke, WorkerUnreachable
from rolecall.model.worker import CardState, Offer
from rolecall.protocol.cards import card_urls
from rolecall.protocol.text.jsontext import NotJson, parse
from rolecall.protocol.workers.offers import apply_card, hosts_elsewhere

_WITHIN = 5.0
_LONGEST_ETAG = 256


class HttpCards:
    """`max_card`: bytes of a card. `within`: seconds for all addresses of one card together. `vault` opens the credentials;
    without it none are sent.
    """

    def __init__(
        self,
        client: Client,
        guard: Guard,
        vault: Vault | None = None,
        *,
        max_card: int,
        max_depth: int,
        within: float = _WITHIN,
    ) -> None:
        self._client = client
        self._guard = guard
        self._vault = vault
        self._max_card = max_card
        self._max_depth = max_depth
        self._within = within

    async def addresses(self, workspace: str, url: str) -> Sequence[Address] | None:
        try:
            target = read_url(url)
            found = await self._guard.resolve(target.host, target.port, workspace)
        except (BadUrl, NotAllowed, OSError, Overloaded):
            return None
        if literal(target.host) is not None:
            return [Address("", _label(target.host, target.port))]
        return [Address(text, _label(text, target.port)) for text in sorted(text for _, text in found)]

    async def read(self, workspace: str, offer: Offer, known: CardState | None) -> CardAnswer:
        before = known if known is not None and known.worker_url == offer.url else None
        urls = dict.fromkeys([*([before.url] if before and before.url else ()), *card_urls(offer.url)])
        reasons: dict[str, int] = {}
        """Why none of them has a card, and the status that it answered."""
        try:
            async with asyncio.timeout(self._within):
                for url in urls:
                    etag = before.etag if before and before.url == url else ""
                    found = await self._get(workspace, offer, url, etag)
                    if found.status == 304 and etag:
                        return CardAnswer(Reach.ANSWERED, _note_on(offer), None, url, etag)
                    if found.status >= 500:
                        return CardAnswer(Reach.SILENT, f"{url}: HTTP {found.status}")
                    answer = self._card_in(offer, url, found)
                    if answer.url:
                        return answer
                    reasons[answer.note] = found.status
        except TimeoutError:
            return CardAnswer(Reach.SILENT, f"no card came from {offer.url} within {self._within:g} s")
        except WorkerUnreachable as error:
            return CardAnswer(Reach.REFUSED if error.refused else Reach.SILENT, f"{error.url}: {error.why}")
        except (WorkerBroke, InvalidAnswer) as error:
            return CardAnswer(Reach.SILENT, f"{offer.url}: {error.why}")
        except HubError as error:
            own = "the hub has no connection for it" if isinstance(error, Overloaded) else "the hub could not ask"
            return CardAnswer(Reach.NOT_ASKED, own)
        # A document that is no card says more than one that is not there.
        return CardAnswer(Reach.ANSWERED, min(reasons, key=lambda reason: reasons[reason] == 404))

    def _card_in(self, offer: Offer, url: str, found: _Found) -> CardAnswer:
        """Without a URL: there is none."""
        if 300 <= found.status < 400:
            return CardAnswer(Reach.ANSWERED, f"{url}: HTTP {found.status}, and the hub follows no redirects")
        if found.status == 401 or (found.status == 403 and offer.credential):
            why = CredentialRefused(str(offer.worker), found.status, shown=bool(offer.credential)).why
            return CardAnswer(Reach.ANSWERED, f"{url}: {why}")
        if found.status != 200:
            return CardAnswer(Reach.ANSWERED, f"{url}: HTTP {found.status}")
        if found.body is None:
            return CardAnswer(Reach.ANSWERED, f"{url}: it is larger than {self._max_card} bytes (max_card)")
        try:
            card = parse(found.body, self._max_depth)
        except NotJson:
            return CardAnswer(Reach.ANSWERED, f"{url}: it is not JSON, or nested too deeply")
        if not isinstance(card, dict) or not isinstance(card.get("name"), str):
            return CardAnswer(Reach.ANSWERED, f"{url}: it is not a card")
        try:
            with_card = apply_card(offer, card, max_card=self._max_card)
        except OfferInvalid as error:
            return CardAnswer(Reach.ANSWERED, f"{url}: {error.field} {error.why}")
        return CardAnswer(Reach.ANSWERED, _note_on(with_card), with_card, url, found.etag)

    async def _get(self, workspace: str, offer: Offer, url: str, etag: str) -> _Found:
        """Raises the failure of the request, and Overloaded or SecretUnreadable if there was none."""
        headers = [*authorization_for(offer, self._vault), *([("If-None-Match", etag)] if etag else [])]
        document = _Document(str(offer.worker), self._max_card)
        self._client.send(
            url,
            b"",
            document,
            headers=headers,
            http_method=b"GET",
            within=offer.networks,
            address=offer.address,
            workspace=workspace,
        )
        try:
            return await document.found
        finally:
            document.close()


def _label(address: str, port: int) -> str:
    """A name begins with a letter or digit: `::1` is the same address as `0::1`."""
    return f"{'0' if address.startswith(':') else ''}{address}-{port}"


def _note_on(offer: Offer) -> str:
    """What of its card the hub does not follow."""
    hosts = hosts_elsewhere(offer.card, offer.url)
    return f"it names {', '.join(hosts[:3])}: calls go to the host of the agent's own URL" if hosts else ""


class _Found(NamedTuple):
    """`body` None: it is too large."""

    status: int
    etag: str = ""
    body: bytes | None = b""


class _Document(Response):
    """A document of limited size. Only a 200 has one."""

    __slots__ = ("_body", "_limit", "found")

    def __init__(self, worker: str, limit: int) -> None:
        super().__init__(worker)
        self.found: asyncio.Future[_Found] = asyncio.get_running_loop().create_future()
        self._limit = limit
        self._body = bytearray()

    def changed(self) -> None:
        if self.found.done():
            return
        if self.status and self.status != 200:
            self.found.set_result(_Found(self.status))
            return
        self._body += self.take(maxsize)
        if self.failure is not None:
            self.found.set_exception(self.failure.copy())
        elif len(self._body) > self._limit:
            self.found.set_result(_Found(self.status, body=None))
        elif self.complete:
            etag, self.headers = self.headers.get(b"etag", b""), NO_HEADERS
            known = etag.decode() if etag.isascii() and len(etag) <= _LONGEST_ETAG else ""
            self.found.set_result(_Found(self.status, known, bytes(self._body)))
