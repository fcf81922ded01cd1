"""The AI Catalog (ai-catalog.io, version 1.0): every live role, with the URL of its card."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from urllib.parse import quote, urlsplit

from quart import Quart, Response

from hub.inbound.api.answers import CatalogDocument
from hub.inbound.api.operation import operation
from hub.inbound.api.requests import DocumentQuery
from hub.inbound.cards.documents import Document, Documents, Outline, Pace, Source, document_response, outlines
from hub.inbound.middleware.authentication import viewer
from rolecall.model.a2a import JsonObject
from rolecall.model.ids import Caller
from rolecall.protocol.cards import CARD_PATHS, FirstOfEach
from rolecall.protocol.text.timestamp import timestamp

PATH = "/.well-known/ai-catalog.json"
MEDIA = "application/ai-catalog+json"
_CARD = "application/a2a-agent-card+json"
_MAX_SIZE = 1024 * 1024
"""Bytes of all entries. A note says how many roles there are beside those that fit."""
_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, OPTIONS",
}


class Catalog:
    def __init__(self, documents: Documents, *, name: str, public_url: str) -> None:
        self._documents = documents
        self._name = name
        self._public_url = public_url.rstrip("/")

    async def document(self, caller: Caller) -> Document:
        return await self._documents.get(caller, None, "catalog", self._make)

    async def _make(self, sources: Sequence[Source], pace: Pace) -> JsonObject:
        host = {"displayName": self._name, "identifier": urlsplit(self._public_url).hostname}
        entries = FirstOfEach[JsonObject](_MAX_SIZE, dict)
        async for outline in outlines(sources, pace):
            entries.add(outline.role, partial(self._entry, outline))
        note = entries.left_out("roles")
        return {"specVersion": "1.0", "host": host, "entries": entries.items, **({"note": note} if note else {})}

    def _entry(self, outline: Outline) -> JsonObject:
        """The identifier is the role's URL at this hub: a name under another domain would be for its owner to give."""
        address = f"{self._public_url}/agents/{quote(outline.role)}"
        return {
            "identifier": f"{address}/",
            "displayName": outline.role,
            "type": _CARD,
            "url": address + CARD_PATHS[0],
            **({"description": outline.description} if outline.description else {}),
            **({"tags": outline.tags} if outline.tags else {}),
            "updatedAt": timestamp(outline.since),
        }


def add_catalog(app: Quart, catalog: Catalog) -> None:
    @app.route(PATH, methods=["OPTIONS"])
    @operation("The CORS headers: every origin may read the catalog.", answers={204: None})
    async def ai_catalog_options() -> Response:
        return Response(status=204, headers={"Allow": "GET, HEAD, OPTIONS", **_HEADERS})

    @app.route(PATH, methods=["GET"], provide_automatic_options=False)
    @operation("The live roles as an AI Catalog.", answers={200: {MEDIA: CatalogDocument}, 304: None})
    async def ai_catalog(query: DocumentQuery) -> Response:
        response = document_response(await catalog.document(viewer()), query, MEDIA)
        response.headers.update(_HEADERS)
        return response
