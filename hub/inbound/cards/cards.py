"""Agent cards: the hub's own, one per role merged from its live workers, and one per worker. All URLs in them are the hub's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from quart import Quart, Response, request

from hub.core.registry.directory import Directory
from hub.inbound.api.answers import Card
from hub.inbound.api.operation import operation
from hub.inbound.api.requests import AgentInPath, CardQuery
from hub.inbound.cards.documents import Document, Documents, Pace, Source, document_response, outlines
from hub.inbound.middleware.authentication import Authenticator, is_role_address, viewer
from rolecall import __version__
from rolecall.errors import ExtendedCardNotConfigured, RoleUnknown, VersionNotSupported
from rolecall.model.a2a import JsonObject
from rolecall.model.card import (
    FILES_EXTENSION,
    HTTP_JSON,
    JSONRPC,
    REPLAY_EXTENSION,
    Capabilities,
    Extension,
    Interface,
    Profile,
    Skill,
)
from rolecall.model.ids import Caller, split_name
from rolecall.protocol.callers.usage import USAGE
from rolecall.protocol.cards import CARD_PATHS, MergedExtensions, MergedModes, MergedSkills, write_card
from rolecall.protocol.dialects import own_bindings, read_version
from rolecall.protocol.extensions.sequence import SEQUENCE

_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, OPTIONS",
    "Access-Control-Allow-Headers": "A2A-Version, A2A-Extensions, X-A2A-Extensions",
    "Access-Control-Expose-Headers": "ETag",
}
_TEXT = ("text/plain",)
_JSON = "application/json"
_SKILLS = 2
"""The skills of a role may be this many times as large as one card. Extensions have as much room as one, and so have modes."""
_HUBS = frozenset({REPLAY_EXTENSION, SEQUENCE.uri, USAGE.uri, FILES_EXTENSION})
"""Extensions that a role has as far as the hub has them, whatever its workers declare."""
_SCHEMES: dict[str, JsonObject] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


class Cards:
    """`version`: the one version of all public cards; None: the version that the request names, or both merged. `max_card`:
    bytes of a worker's card. A role's card has room for a few of them: see `_SKILLS`. `files`: None: the hub stores none.
    """

    def __init__(
        self,
        directory: Directory,
        documents: Documents,
        *,
        name: str,
        description: str,
        public_url: str,
        version: str | None,
        authenticator: Authenticator,
        max_card: int,
        durable: bool = False,
        files: Extension | None = None,
    ) -> None:
        self._directory = directory
        self._documents = documents
        self._name = name
        self._description = description
        self._public_url = public_url.rstrip("/")
        self._version = version
        self._authenticator = authenticator
        self._max_card = max_card
        self._own = (SEQUENCE, USAGE) if files is None else (SEQUENCE, USAGE, files)
        self._replays = Extension(
            REPLAY_EXTENSION, "Streams resume exactly from Last-Event-ID.", params={"durable": True} if durable else None
        )

    async def public(self, caller: Caller, name: str | None, requested: str | None) -> Document:
        """The hub's card, a role's, or that of one worker (`role:instance`). RoleUnknown."""
        return await self._document(caller, name, self._version or requested)

    async def extended(self, caller: Caller, name: str | None, dialect: str) -> bytes:
        """The card with the roles of the caller's workspace, in the caller's dialect. Roles are visible only with a token.
        ExtendedCardNotConfigured, RoleUnknown.
        """
        if not self._authenticator.locked:
            raise ExtendedCardNotConfigured
        return (await self._document(caller, name, dialect)).body

    async def _document(self, caller: Caller, name: str | None, version: str | None) -> Document:
        role, instance = split_name(name) if name is not None else (None, None)
        if role is None:
            make = partial(self._hub, version)
        elif any(instance in (None, one.worker.instance) for one in self._directory.live(caller, role)):
            make = partial(self._role, role, instance, version)
        else:
            raise RoleUnknown(name or role, self._directory.roles(caller))
        return await self._documents.get(caller, role, ("card", instance, version, self._authenticator.locked), make)

    async def _hub(self, version: str | None, sources: Sequence[Source], pace: Pace) -> JsonObject:
        """The hub's card lists every live role as a skill, as long as they fit."""
        found = MergedSkills(_SKILLS * self._max_card)
        async for outline in outlines(sources, pace):
            role = outline.role
            found.add(role, partial(Skill, role, role, outline.description or _usual_text(role), ("role", *outline.tags)))
        description = _with_note(self._description, found.left_out("roles"))
        profile = self._profile(self._name, description, f"{self._public_url}/a2a", self._public_url)
        return write_card(replace(profile, skills=tuple(found.items)), version)

    async def _role(
        self, role: str, instance: str | None, version: str | None, sources: Sequence[Source], pace: Pace
    ) -> JsonObject:
        """The cards of the role's workers as one, in the order of their names; or of one instance, which it then selects."""
        if instance is not None:
            sources = [source for source in sources if source.offer.worker.instance == instance]
        name = role if instance is None else f"{role}:{instance}"
        limit, base = self._max_card, f"{self._public_url}/agents/{name}"
        found, extensions = MergedSkills(_SKILLS * limit), MergedExtensions(limit)
        takes, gives = MergedModes(limit // 2, "defaultInputModes"), MergedModes(limit // 2, "defaultOutputModes")
        for source in sorted(sources, key=lambda source: source.offer.worker):
            for part in (found, extensions, takes, gives):
                for _ in part.add_card(source.offer.card):
                    await pace.rest()
        description = next((one.offer.about for one in sources if one.offer.about), _usual_text(role))
        profile = replace(
            self._profile(name, _with_note(description, found.left_out("skills")), f"{base}/", base),
            skills=tuple(found.items),
            input_modes=tuple(takes.items) or _TEXT,
            output_modes=tuple(gives.items) or _TEXT,
        )
        # The hub replays as its own worker would: to another hub it is one.
        theirs = [extension for extension in extensions.items if extension.uri not in _HUBS]
        able = replace(profile.capabilities, extensions=(*profile.capabilities.extensions, self._replays, *theirs))
        return write_card(replace(profile, capabilities=able), version)

    def _profile(self, name: str, description: str, rpc: str, rest: str) -> Profile:
        """Streaming is always on, because the hub supplies what a worker lacks."""
        at = {JSONRPC: rpc, HTTP_JSON: rest}
        return Profile(
            name=name,
            description=description,
            version=__version__,
            interfaces=tuple(Interface(at[binding], binding, version) for version, binding in own_bindings()),
            capabilities=Capabilities(
                streaming=True, push_notifications=True, extended_card=self._authenticator.locked, extensions=self._own
            ),
            security_schemes=_SCHEMES if self._authenticator.locked else {},
            requirements=({"bearer": ()}, {"apiKey": ()}) if self._authenticator.locked else (),
        )


def add_cards(app: Quart, cards: Cards) -> None:
    answers = {200: Card, 304: None}

    @operation("The hub's card.", answers=answers)
    async def hub_card(query: CardQuery) -> Response:
        return document_response(await cards.public(viewer(), None, _requested_version(query)), query, _JSON)

    @operation("A role's card, made from its live workers', or that of one: role:instance.", RoleUnknown, answers=answers)
    async def role_card(role: AgentInPath, query: CardQuery) -> Response:
        return document_response(await cards.public(viewer(), role, _requested_version(query)), query, _JSON)

    for path in CARD_PATHS:
        app.add_url_rule(path, f"hub:{path}", hub_card, methods=["GET"])
        app.add_url_rule(f"/agents/<role>{path}", f"role:{path}", role_card, methods=["GET"])
    app.add_url_rule("/agents/<role>/", "role", role_card, methods=["GET"])

    @app.after_request
    async def allow_reading(response: Response) -> Response:
        if "/.well-known/agent" in request.path or is_role_address(request.path):
            response.headers.update(_CORS)
        return response


def _requested_version(query: CardQuery) -> str | None:
    """None also for a version that the hub does not have: a client learns from the card which ones there are."""
    try:
        return read_version(query.version or request.args.get("A2A-Version"))
    except VersionNotSupported:
        return None


def _usual_text(role: str) -> str:
    return f"{role}, behind Rolecall"


def _with_note(description: str, note: str) -> str:
    return f"{description} ({note})" if note else description
