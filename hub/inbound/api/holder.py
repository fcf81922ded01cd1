"""Whom the hub takes the caller for: what a command line or a dashboard asks first."""

from __future__ import annotations

from quart import Quart

from hub.inbound.api.answers import TokenHolder
from hub.inbound.api.operation import operation
from hub.inbound.middleware.authentication import holder
from rolecall.model.principal import Right


def add_holder(app: Quart) -> None:
    @app.get("/registry/me")
    @operation("The holder of the token, and its rights.")
    async def show_holder() -> TokenHolder:
        found = holder()
        rights = [right for right in Right if found.may(right)]
        return TokenHolder(name=found.name, kind=found.kind, workspace=found.workspace, rights=rights)
