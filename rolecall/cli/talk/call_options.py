"""What a call says to the hub and to its worker beside the message: the same options for `send` and `chat`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import click

from rolecall.cli.completion import complete_skill
from rolecall.model.a2a import JsonObject

_LONGEST_WAIT = 300
_Command = TypeVar("_Command", bound=Callable[..., Any])


class CallOptions(NamedTuple):
    """`skill`: of the role's handlers, the one that is meant. `wait`: seconds for a worker to be free."""

    skill: str | None = None
    wait: float | None = None
    metadata: JsonObject | None = None

    @property
    def whole_metadata(self) -> JsonObject:
        return {**(self.metadata or {})} | ({} if self.wait is None else {"waitSeconds": self.wait})

    @property
    def of_answer(self) -> CallOptions:
        """An answer to a question goes to the handler that asked, and waits for nobody else."""
        return CallOptions(metadata=self.metadata)


class Json(click.ParamType[Any]):
    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return json.loads(value)
        except ValueError as error:
            self.fail(f"it is not JSON: {error}.", param, ctx)


class _JsonObject(Json):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not isinstance(found, dict):
            self.fail("it must be an object, such as '{\"customer\": 7}'.", param, ctx)
        return found


def call_options(command: _Command) -> Callable[..., Any]:
    """The command gets them as one argument, `call`."""

    @click.option(
        "--skill", metavar="ID", shell_complete=complete_skill, help="Of the role's handlers, the one for this skill."
    )
    @click.option(
        "--wait",
        type=click.FloatRange(0, _LONGEST_WAIT),
        metavar="SECONDS",
        help=f"Wait so long for a worker that is free, or for the first one; up to {_LONGEST_WAIT}.",
    )
    @click.option("--metadata", type=_JsonObject(), metavar="JSON", help="Send this object as the metadata of the call.")
    @wraps(command)
    def with_options(skill: str | None, wait: float | None, metadata: JsonObject | None, **others: Any) -> Any:
        return command(call=CallOptions(skill, wait, metadata), **others)

    return with_options
