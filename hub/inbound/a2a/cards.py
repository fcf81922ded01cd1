"""Agent cards: the hub's own, and one per role made from its live workers. Every address in them is the hub's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple

from quart import Quart, Response, request

from hub.core.registry.directory import Directory
from hub.inbound.api.application import briefly_kept
from hub.inbound.api.operation_doc import documented
from hub.inbound.api.shapes import Card, Version
from hub.inbound.middleware.authentication import Authenticator, viewer
from rolecall import __version__
from rolecall.errors import ExtendedCardNotConfigured, RoleUnknown, VersionNotSupported
from rolecall.model.a2a import JsonObject
from rolecall.model.card import HTTP_JSON, JSONRPC, REPLAY_EXTENSION, Capabilities, Extension, Interface, Profile, Skill
from rolecall.model.ids import Caller
from rolecall.model.worker import Registration
from rolecall.protocol.cards import capabilities, merged, pure_03, pure_10, skills
from rolecall.protocol.dialect import V0_3, V1_0
from rolecall.protocol.methods import read_version
from rolecall.protocol.text.jsontext import dump

PATHS = ("agent-card.json", "agent.json")
_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, OPTIONS",
    "Access-Control-Allow-Headers": "A2A-Version, A2A-Extensions, X-A2A-Extensions",
    "Access-Control-Expose-Headers": "ETag",
}
_TEXT = ("text/plain",)
_MOST_KEPT = 1_000
_HEADERS = {"A2A-Version": Version, "If-None-Match": str}
_SCHEMES: dict[str, JsonObject] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


class RenderedCard(NamedTuple):
    """A card as it is served, and as of which change of the registry."""

    revision: int
    body: bytes
    etag: str


class Cards:
    """`version`: every public card is this version's alone; without it, what the caller asks for, or both in one."""

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
        self._kept: dict[tuple[str, str | None, str | None, bool], RenderedCard] = {}

    def shown(self, caller: Caller, role: str | None, asked: str | None) -> RenderedCard:
        """The hub's card, or a role's. RoleUnknown."""
        return self._shown(caller, role, self._version or asked)

    def extended(self, caller: Caller, role: str | None, dialect: str) -> bytes:
        """What the caller may see, in what he speaks: his workspace's roles, which nobody sees who shows no token.
        ExtendedCardNotConfigured, RoleUnknown.
        """
        if not self._authenticator.locked:
            raise ExtendedCardNotConfigured
        return self._shown(caller, role, dialect).body

    def _shown(self, caller: Caller, role: str | None, version: str | None) -> RenderedCard:
        """Made anew when the registry has changed."""
        if role is not None and not self._directory.live(caller, role):
            raise RoleUnknown(role, self._directory.roles(caller))
        key, revision = (caller.workspace, role, version, self._authenticator.locked), self._directory.revision()
        kept = self._kept.get(key)
        if kept is None or kept.revision != revision:
            card = self._hub(caller, version) if role is None else self._role(caller, role, version)
            body = dump(card)
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            kept = self._kept[key] = RenderedCard(revision, body, f'"{sha256(body).hexdigest()[:32]}"')
        return kept

    def _hub(self, caller: Caller, version: str | None) -> JsonObject:
        """The hub's card: every live role is a skill of it."""
        skills = tuple(self._as_skill(caller, role) for role in self._directory.roles(caller))
        profile = self._profile(self._name, self._description, f"{self._public_url}/a2a", self._public_url)
        return _written(replace(profile, skills=skills), version)

    def _role(self, caller: Caller, role: str, version: str | None) -> JsonObject:
        live = self._directory.live(caller, role)
        cards = [registration.offer.card for registration in live]
        base = f"{self._public_url}/agents/{role}"
        profile = replace(
            self._profile(role, _description(live), f"{base}/", base),
            skills=_merged_skills(cards),
            input_modes=_merged(cards, "defaultInputModes") or _TEXT,
            output_modes=_merged(cards, "defaultOutputModes") or _TEXT,
        )
        able = replace(profile.capabilities, extensions=_merged_extensions(cards))
        return _written(replace(profile, capabilities=able), version)

    def _profile(self, name: str, description: str, rpc: str, rest: str) -> Profile:
        """What a worker lacks the hub supplies, so streaming is always on. What is not there is not claimed."""
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

    @documented("The hub's card.", answers, VersionNotSupported, headers=_HEADERS)
    def of_the_hub() -> Response:
        return _served(cards.shown(viewer(), None, _asked()))

    @documented("A role's card, made from its live workers'.", answers, RoleUnknown, VersionNotSupported, headers=_HEADERS)
    def of_a_role(role: str) -> Response:
        return _served(cards.shown(viewer(), role, _asked()))

    for path in PATHS:
        app.add_url_rule(f"/.well-known/{path}", f"hub-{path}", of_the_hub, methods=["GET"])
        app.add_url_rule(f"/agents/<role>/.well-known/{path}", f"role-{path}", of_a_role, methods=["GET"])

    @app.after_request
    async def allow_reading(response: Response) -> Response:
        if "/.well-known/agent" in request.path:
            response.headers.update(_CORS)
        return response


def _written(profile: Profile, version: str | None) -> JsonObject:
    if version == V1_0:
        return pure_10(profile)
    return pure_03(profile) if version is not None else merged(profile)


def _asked() -> str | None:
    return read_version(request.headers.get("A2A-Version") or request.args.get("A2A-Version"))


def _served(card: RenderedCard) -> Response:
    if card.etag in request.headers.get("If-None-Match", ""):
        response = Response(status=304)
    else:
        response = Response(card.body, content_type="application/json")
    response.headers["ETag"] = card.etag
    response.headers.update(briefly_kept())
    return response


def _description(live: Sequence[Registration]) -> str:
    return next((r.offer.description for r in live if r.offer.description), f"{live[0].worker.role}, behind Rolecall")


def _merged_skills(cards: Sequence[JsonObject]) -> tuple[Skill, ...]:
    """Every skill that a live worker offers, once."""
    found: dict[str, Skill] = {}
    for card in cards:
        for skill in skills(card):
            found.setdefault(skill.id, skill)
    return tuple(found.values())


def _merged_extensions(cards: Sequence[JsonObject]) -> tuple[Extension, ...]:
    """What a worker's stream can do towards the hub is no promise of the hub's."""
    found = {e.uri: e for card in cards for e in capabilities(card).extensions if e.uri != REPLAY_EXTENSION}
    return tuple(found.values())


def _merged(cards: Sequence[JsonObject], member: str) -> tuple[str, ...]:
    modes = [mode for card in cards for mode in card.get(member) or () if isinstance(mode, str)]
    return tuple(dict.fromkeys(modes))
