"""Task ids as people type them."""

from __future__ import annotations

import asyncio

import click
import pytest

from rolecall.cli.tasks.ids import whole_id
from tests.unit.cli.scripted_hub import Response, ScriptedHub
from worker_sdk import HubClient

ONE, TWO = "01a1f72c-7c8e-738c-94c5-d138cf90f0d7", "01a1f72c-855f-7be2-951a-3fac9e7ffc3e"


def found(hub: ScriptedHub, text: str) -> str:
    async def find() -> str:
        async with HubClient(hub.url) as client:
            return await whole_id(client, text, role="echo")

    hub.on("GET /registry/tasks", Response({"tasks": [{"id": ONE}, {"id": TWO}], "total": 2, "next_cursor": None}))
    return asyncio.run(find())


@pytest.mark.parametrize(("text", "task"), [("01a1f72c-7", ONE), ("f0d7", ONE), ("9e7ffc3e", TWO), ("01a1f72c-855f", TWO)])
def test_the_beginning_or_the_end_of_an_id_is_enough(hub: ScriptedHub, text: str, task: str) -> None:
    assert found(hub, text) == task
    assert "role=echo" in hub.requests[0].query


@pytest.mark.parametrize("text", [ONE, "f0d", "my-own-name", "ffff", "ID"])
def test_what_is_no_part_of_a_known_id_stays_as_it_is(hub: ScriptedHub, text: str) -> None:
    assert found(hub, text) == text


def test_a_part_that_fits_several_is_refused_with_them(hub: ScriptedHub) -> None:
    with pytest.raises(click.UsageError, match=f"01a1f72c fits 2 tasks: {ONE}, {TWO}"):
        found(hub, "01a1f72c")
