"""The handlers of a worker: one for each named skill, and one for the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, NoReturn

from rolecall.errors import InvalidParams
from rolecall.model.a2a import JsonObject
from rolecall.model.card import Skill
from rolecall.protocol.cards import skills
from worker_sdk.handlers.handler import Form, Handler

_LONGEST_NAME = 100


class Skills:
    """`listed`: what the card says of the skills that `on_message` answers; without any it is one, named like the role."""

    def __init__(self, role: str, listed: Sequence[Mapping[str, Any]]) -> None:
        self.role = role
        self.on_message: Handler | None = None
        self._listed = [dict(skill) for skill in listed]
        self._named: dict[str, Handler] = {}
        self._members: dict[str, JsonObject] = {}

    def __bool__(self) -> bool:
        return self.on_message is not None or bool(self._named)

    @property
    def any_plain(self) -> bool:
        return any(handler.form is Form.PLAIN for handler in self._handlers())

    def add(self, name: str, handler: Handler, members: JsonObject) -> None:
        """TypeError: there is one with that id."""
        if not name or name in self._named or any(name == skill.get("id") for skill in self._listed):
            raise TypeError(f'a skill needs an id of its own, not "{name}"')
        self._named[name] = handler
        self._members[name] = {"id": name, **members}

    def choose(self, named: str | None, message: JsonObject) -> Handler:
        """For a call that names this skill. InvalidParams, also if the handler expects a text, and can see no part of the
        message: it would answer as if nothing had been sent.
        """
        chosen = self._chosen(named)
        kinds = {str(part.get("kind")) for part in message.get("parts") or ()}
        if kinds and chosen.expects_text and not chosen.sees(kinds):
            self._refuse(kinds)
        return chosen

    def _refuse(self, kinds: Collection[str]) -> NoReturn:
        what = " and ".join(sorted(kinds))
        able = [(name, handler.model) for name, handler in self._named.items() if handler.sees(kinds)]
        listed = ", ".join(f"{name} ({model})" if model else name for name, model in able)
        instead = f"Of this worker's skills, these take {what}: {listed}." if able else "Send a text."
        raise InvalidParams(f"The message has only {what}, and this handler takes text. {instead}")

    def _chosen(self, named: str | None) -> Handler:
        if named is None or not self._named:
            chosen = self.on_message or (next(iter(self._named.values())) if len(self._named) == 1 else None)
            if chosen is None:
                raise InvalidParams(f"Name a skill in metadata.skill. This worker has: {', '.join(self._named)}.")
            return chosen
        entries = list(self._cards(""))
        chosen = next((self._handler_of(one["id"]) for one in entries if named in (one["id"], one["name"])), None)
        if chosen is not None:
            return chosen
        ids = [one["id"] for one in entries]
        near = get_close_matches(named[:_LONGEST_NAME], ids, n=1)
        suggestion = f" Did you mean {near[0]}?" if near else ""
        raise InvalidParams(f'There is no skill "{named[:_LONGEST_NAME]}". This worker has: {", ".join(ids)}.{suggestion}')

    def on_card(self, description: str) -> tuple[Skill, ...]:
        """`description`: the worker's, for skills without one whose handler has no docstring."""
        return tuple(self._with_schemas(skill) for skill in skills({"skills": list(self._cards(description))}))

    def _with_schemas(self, skill: Skill) -> Skill:
        handler = self._handler_of(skill.id)
        return replace(skill, input_schema=handler.input_schema, output_schema=handler.output_schema) if handler else skill

    def _cards(self, description: str) -> Iterator[JsonObject]:
        for members in () if self._named and self.on_message is None else self._listed or [{"id": self.role}]:
            name = str(members.get("id") or members.get("name") or self.role)
            own = (self.on_message.description if self.on_message is not None else "") or description or name
            yield {"id": name, "name": name, "description": own, "tags": [self.role], **members}
        for name, members in self._members.items():
            own = self._named[name].description or name
            yield {"name": name, "tags": [self.role], **members, "description": members.get("description") or own}

    def _handler_of(self, name: str) -> Handler | None:
        return self._named.get(name) or self.on_message

    def _handlers(self) -> list[Handler]:
        return [*self._named.values(), *([self.on_message] if self.on_message else [])]
