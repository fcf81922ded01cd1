"""Agent cards: the hub's own, and one per role made from its live workers. Every address in them is the hub's."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from quart import Quart, Response, request

from hub import __version__
from hub.core.directory import Directory
from hub.errors import RoleUnknown
from hub.model.a2a import JsonObject
from hub.model.worker import Registration
from hub.web.auth import LOCAL
from hub.wire.jsontext import dump

PATHS = ("agent-card.json", "agent.json")
_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, OPTIONS",
    "Access-Control-Allow-Headers": "A2A-Version, A2A-Extensions, X-A2A-Extensions",
    "Access-Control-Expose-Headers": "ETag",
}
_TEXT = ["text/plain"]


class Cards:
    def __init__(self, directory: Directory, *, name: str, description: str, public_url: str) -> None:
        self._directory = directory
        self._name = name
        self._description = description
        self._public_url = public_url.rstrip("/")

    def hub(self) -> JsonObject:
        """The hub's card: every live role is a skill of it."""
        skills: list[JsonObject] = [self._as_skill(role) for role in self._directory.roles(LOCAL)]
        return self._card(self._name, self._description, f"{self._public_url}/a2a", skills, _TEXT, _TEXT)

    def role(self, role: str) -> JsonObject:
        live = self._directory.live(LOCAL, role)
        if not live:
            raise RoleUnknown(role, self._directory.roles(LOCAL))
        cards = [registration.offer.card for registration in live]
        return self._card(
            role,
            _description(live),
            f"{self._public_url}/agents/{role}/",
            _merged_skills(cards),
            _merged(cards, "defaultInputModes") or _TEXT,
            _merged(cards, "defaultOutputModes") or _TEXT,
        )

    def _card(
        self, name: str, description: str, url: str, skills: list[JsonObject], takes: list[str], gives: list[str]
    ) -> JsonObject:
        """Streaming is always on: what a worker lacks, the hub supplies. What is not there is not claimed."""
        return {
            "protocolVersion": "0.3.0",
            "name": name,
            "description": description,
            "version": __version__,
            "url": url,
            "preferredTransport": "JSONRPC",
            "additionalInterfaces": [{"url": url, "transport": "JSONRPC"}],
            "capabilities": {"streaming": True, "pushNotifications": False, "stateTransitionHistory": False},
            "defaultInputModes": takes,
            "defaultOutputModes": gives,
            "skills": skills,
            "supportsAuthenticatedExtendedCard": False,
        }

    def _as_skill(self, role: str) -> JsonObject:
        live = self._directory.live(LOCAL, role)
        tags = sorted({tag for registration in live for tag in registration.offer.tags})
        return {"id": role, "name": role, "description": _description(live), "tags": ["role", *tags[:20]]}


def add_cards(app: Quart, cards: Cards) -> None:
    for path in PATHS:
        app.add_url_rule(f"/.well-known/{path}", f"hub-{path}", lambda: _served(cards.hub()), methods=["GET"])
        app.add_url_rule(
            f"/agents/<role>/.well-known/{path}", f"role-{path}", lambda role: _served(cards.role(role)), methods=["GET"]
        )

    @app.after_request
    async def allow_reading(response: Response) -> Response:
        if "/.well-known/agent" in request.path:
            response.headers.update(_CORS)
        return response


def _served(card: JsonObject) -> Response:
    body = dump(card)
    etag = f'"{sha256(body).hexdigest()[:32]}"'
    if etag in request.headers.get("If-None-Match", ""):
        response = Response(status=304)
    else:
        response = Response(body, content_type="application/json")
    response.headers["ETag"] = etag
    response.headers["Cache-Control"] = "public, max-age=5"
    return response


def _description(live: Sequence[Registration]) -> str:
    return next((r.offer.description for r in live if r.offer.description), f"{live[0].worker.role}, behind Rolecall")


def _merged_skills(cards: Sequence[JsonObject]) -> list[JsonObject]:
    """Every skill that a live worker offers, once; what clients insist on is filled in."""
    skills: dict[str, JsonObject] = {}
    for card in cards:
        for skill in card.get("skills") or ():
            name = str(skill.get("id") or skill.get("name") or "skill")
            filled = {"id": name, "name": name, "description": name, "tags": []}
            skills.setdefault(name, {**filled, **{key: value for key, value in skill.items() if value is not None}})
    return list(skills.values())


def _merged(cards: Sequence[JsonObject], member: str) -> list[str]:
    modes = [mode for card in cards for mode in card.get(member) or () if isinstance(mode, str)]
    return list(dict.fromkeys(modes))
