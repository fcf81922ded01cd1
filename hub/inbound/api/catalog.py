"""The AI Catalog (ai-catalog.io, version 1.0): every live role, with the URL of its card."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from quart import Quart, Response

from hub.core.registry.directory import Directory
from hub.inbound.api.answers import CatalogDocument
from hub.inbound.api.application import cache_headers
from hub.inbound.api.operation import operation
from hub.inbound.middleware.authentication import viewer
from rolecall.model.a2a import JsonObject
from rolecall.model.ids import Caller
from rolecall.protocol.cards import CARD_PATHS
from rolecall.protocol.text.jsontext import dump
from rolecall.protocol.text.timestamp import timestamp

PATH = "/.well-known/ai-catalog.json"
MEDIA = "application/ai-catalog+json"
_CARD = "application/a2a-agent-card+json"
_MAX_TAGS = 20
_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, OPTIONS",
}


class Catalog:
    def __init__(self, directory: Directory, *, name: str, public_url: str) -> None:
        self._directory = directory
        self._name = name
        self._public_url = public_url.rstrip("/")

    def document(self, caller: Caller) -> JsonObject:
        host = {"displayName": self._name, "identifier": urlsplit(self._public_url).hostname}
        entries = [self._entry(caller, role) for role in self._directory.roles(caller)]
        return {"specVersion": "1.0", "host": host, "entries": entries}

    def _entry(self, caller: Caller, role: str) -> JsonObject:
        """The identifier is the role's URL at this hub: a name under another domain would be for its owner to give."""
        live = self._directory.live(caller, role)
        address = f"{self._public_url}/agents/{quote(role)}"
        description = next((one.offer.description for one in live if one.offer.description), "")
        tags = sorted({tag for one in live for tag in one.offer.tags})[:_MAX_TAGS]
        return {
            "identifier": f"{address}/",
            "displayName": role,
            "type": _CARD,
            "url": address + CARD_PATHS[0],
            **({"description": description} if description else {}),
            **({"tags": tags} if tags else {}),
            "updatedAt": timestamp(max(one.registered_at for one in live)),
        }


def add_catalog(app: Quart, catalog: Catalog) -> None:
    @app.route(PATH, methods=["OPTIONS"])
    @operation("The CORS headers: every origin may read the catalog.", answers={204: None})
    async def ai_catalog_options() -> Response:
        return Response(status=204, headers={"Allow": "GET, HEAD, OPTIONS", **_HEADERS})

    @app.route(PATH, methods=["GET"], provide_automatic_options=False)
    @operation("The live roles as an AI Catalog.", answers={200: {MEDIA: CatalogDocument}})
    async def ai_catalog() -> Response:
        headers = {**_HEADERS, **cache_headers()}
        return Response(dump(catalog.document(viewer())), content_type=MEDIA, headers=headers)
