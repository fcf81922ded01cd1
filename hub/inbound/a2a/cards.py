"""Agent cards: the hub's own, and one per role merged from its live workers. All URLs in them are the hub's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from typing import NamedTuple

from quart import Quart, Response, request

from hub.core.registry.directory import Directory
from hub.inbound.api.answers import Card
from hub.inbound.api.application import cache_headers
from hub.inbound.api.operation import operation
from hub.inbound.api.requests import CardQuery, RoleInPath
from hub.inbound.middleware.authentication import Authenticator, viewer
from rolecall import __version__
from rolecall.errors import ExtendedCardNotConfigured, RoleUnknown, VersionNotSupported
from rolecall.model.a2a import JsonObject
from rolecall.model.card import HTTP_JSON, JSONRPC, REPLAY_EXTENSION, Capabilities, Extension, Interface, Profile, Skill
from rolecall.model.ids import Caller
from rolecall.model.worker import Registration
from rolecall.protocol.cards import CARD_PATHS, capabilities, input_modes, merged, output_modes, pure_03, pure_10, skills
from rolecall.protocol.dialect import V0_3, V1_0
from rolecall.protocol.methods import read_version
from rolecall.protocol.text.jsontext import dump

_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, OPTIONS",
    "Access-Control-Allow-Headers": "A2A-Version, A2A-Extensions, X-A2A-Extensions",
    "Access-Control-Expose-Headers": "ETag",
}
_TEXT = ("text/plain",)
_MAX_CACHED = 1_000
_SCHEMES: dict[str, JsonObject] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


class RenderedCard(NamedTuple):
    """A card as it is served, and the registry revision that it was made from."""

    revision: int
    body: bytes
    etag: str


class Cards:
    """`version`: the one version of all public cards; None: the version that the request names, or both merged."""

    def __init__(
        self,
        directory: Directory,
        *,
        name: str,
        description: str,
        public_url: str,
        version: str | None,
        authenticator: Authenticator,
    ) -> None:
        self._directory = directory
        self._name = name
        self._description = description
        self._public_url = public_url.rstrip("/")
        self._version = version
        self._authenticator = authenticator
        self._cache: dict[tuple[str, str | None, str | None, bool], RenderedCard] = {}

    def public(self, caller: Caller, role: str | None, requested: str | None) -> RenderedCard:
        """The hub's card, or a role's. RoleUnknown."""
        return self._rendered(caller, role, self._version or requested)

    def extended(self, caller: Caller, role: str | None, dialect: str) -> bytes:
        """The card with the roles of the caller's workspace, in the caller's dialect. Roles are visible only with a token.
        ExtendedCardNotConfigured, RoleUnknown.
        """
        if not self._authenticator.locked:
            raise ExtendedCardNotConfigured
        return self._rendered(caller, role, dialect).body

    def _rendered(self, caller: Caller, role: str | None, version: str | None) -> RenderedCard:
        """Cached until the registry changes."""
        if role is not None and not self._directory.live(caller, role):
            raise RoleUnknown(role, self._directory.roles(caller))
        key, revision = (caller.workspace, role, version, self._authenticator.locked), self._directory.revision()
        cached = self._cache.get(key)
        if cached is None or cached.revision != revision:
            card = self._hub(caller, version) if role is None else self._role(caller, role, version)
            body = dump(card)
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            cached = self._cache[key] = RenderedCard(revision, body, f'"{sha256(body).hexdigest()[:32]}"')
        return cached

    def _hub(self, caller: Caller, version: str | None) -> JsonObject:
        """The hub's card lists every live role as a skill."""
        skills = tuple(self._as_skill(caller, role) for role in self._directory.roles(caller))
        profile = self._profile(self._name, self._description, f"{self._public_url}/a2a", self._public_url)
        return _render(replace(profile, skills=skills), version)

    def _role(self, caller: Caller, role: str, version: str | None) -> JsonObject:
        live = self._directory.live(caller, role)
        cards = [registration.offer.card for registration in live]
        base = f"{self._public_url}/agents/{role}"
        profile = replace(
            self._profile(role, _description(live), f"{base}/", base),
            skills=_merged_skills(cards),
            input_modes=_once_each(map(input_modes, cards)) or _TEXT,
            output_modes=_once_each(map(output_modes, cards)) or _TEXT,
        )
        capabilities_of_role = replace(profile.capabilities, extensions=_merged_extensions(cards))
        return _render(replace(profile, capabilities=capabilities_of_role), version)

    def _profile(self, name: str, description: str, rpc: str, rest: str) -> Profile:
        """Streaming is always on, because the hub supplies what a worker lacks."""
        return Profile(
            name=name,
            description=description,
            version=__version__,
            interfaces=(
                Interface(rpc, JSONRPC, V1_0),
                Interface(rest, HTTP_JSON, V1_0),
                Interface(rpc, JSONRPC, V0_3),
            ),
            capabilities=Capabilities(streaming=True, push_notifications=True, extended_card=self._authenticator.locked),
            security_schemes=_SCHEMES if self._authenticator.locked else {},
            requirements=({"bearer": ()}, {"apiKey": ()}) if self._authenticator.locked else (),
        )

    def _as_skill(self, caller: Caller, role: str) -> Skill:
        live = self._directory.live(caller, role)
        tags = sorted({tag for registration in live for tag in registration.offer.tags})
        return Skill(role, role, _description(live), ("role", *tags[:20]))


def add_cards(app: Quart, cards: Cards) -> None:
    answers = {200: Card, 304: None}

    @operation("The hub's card.", VersionNotSupported, answers=answers)
    async def hub_card(query: CardQuery) -> Response:
        return _response(cards.public(viewer(), None, _requested_version(query)), query.etag)

    @operation("A role's card, made from its live workers'.", RoleUnknown, VersionNotSupported, answers=answers)
    async def role_card(role: RoleInPath, query: CardQuery) -> Response:
        return _response(cards.public(viewer(), role, _requested_version(query)), query.etag)

    for path in CARD_PATHS:
        app.add_url_rule(path, f"hub:{path}", hub_card, methods=["GET"])
        app.add_url_rule(f"/agents/<role>{path}", f"role:{path}", role_card, methods=["GET"])

    @app.after_request
    async def allow_reading(response: Response) -> Response:
        if "/.well-known/agent" in request.path:
            response.headers.update(_CORS)
        return response


def _render(profile: Profile, version: str | None) -> JsonObject:
    if version == V1_0:
        return pure_10(profile)
    return pure_03(profile) if version is not None else merged(profile)


def _requested_version(query: CardQuery) -> str | None:
    return read_version(query.version or request.args.get("A2A-Version"))


def _response(card: RenderedCard, known: str) -> Response:
    response = Response(status=304) if card.etag in known else Response(card.body, content_type="application/json")
    response.headers["ETag"] = card.etag
    response.headers.update(cache_headers())
    return response


def _description(live: Sequence[Registration]) -> str:
    return next((r.offer.description for r in live if r.offer.description), f"{live[0].worker.role}, behind Rolecall")


def _merged_skills(cards: Sequence[JsonObject]) -> tuple[Skill, ...]:
    """Every skill of a live worker, once per id."""
    found: dict[str, Skill] = {}
    for card in cards:
        for skill in skills(card):
            found.setdefault(skill.id, skill)
    return tuple(found.values())


def _merged_extensions(cards: Sequence[JsonObject]) -> tuple[Extension, ...]:
    """Without the replay extension: it is between worker and hub, and the hub does not offer it."""
    found = {e.uri: e for card in cards for e in capabilities(card).extensions if e.uri != REPLAY_EXTENSION}
    return tuple(found.values())


def _once_each(modes: Iterable[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(modes)))
