"""Which configs are accepted, and where their secrets are stored."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from hub.identity.vault import SealingVault, random_key
from rolecall.errors import InvalidParams, PushConfigNotFound, TaskNotFound, WebhookRejected
from rolecall.model.ids import Caller, TaskId
from rolecall.model.push import PushConfig
from tests.flow.conftest import CALLER, System
from tests.flow.push.conftest import BODY_COMPLETE, DONE, Post, a_task, advance_until, logged, post_of, until
from tests.helpers.receiver import Receiver
from tests.helpers.scripted import task


async def test_secrets_are_sent_unchanged_and_stored_sealed_only(
    post: Post, system: System, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    mine = await a_task(system)
    receiver.then(500, 404)
    kept = await post.set(mine, receiver.url, token="tok-SECRET", schemes=("Basic",), credentials="cred-SECRET")
    await logged(system, mine, task("working"), DONE)
    await advance_until(post, lambda: len(receiver.got) == 3)
    headers = receiver.got[-1].headers
    assert (headers["authorization"], headers["x-a2a-notification-token"]) == ("Basic cred-SECRET", "tok-SECRET")
    (stored,) = await system.engine.pushes.list(CALLER, mine)
    shown = [kept, await post.push.get(CALLER, mine, "c"), *(await post.push.list(CALLER, mine)), stored]
    shown += [stored.token, stored.credentials, *(await post.push.dead_letters(CALLER)).letters]
    shown += [record.__dict__ for record in caplog.records]
    assert "SECRET" not in repr(shown)
    assert (kept.token, kept.credentials, kept.schemes) == (None, None, ("Basic",))
    assert "SECRET" not in repr(PushConfig(mine, "c", "u", "0.3", token="SECRET", credentials="SECRET"))


async def test_an_unreadable_secret_is_a_failed_delivery(post: Post, system: System, receiver: Receiver) -> None:
    """The right key may be back after the next start."""
    mine = await a_task(system)
    await post.set(mine, receiver.url, token="T")
    await post.supervisor.close()
    stranger = post_of(system, post.client, post.guard, vault=SealingVault(random_key()))
    await logged(system, mine, BODY_COMPLETE)
    await until(lambda: stranger.observer.outcomes == ["failed"])
    await stranger.supervisor.close()
    assert not receiver.got
    right = post.other()
    await advance_until(right, lambda: receiver.taken == [1])
    await right.supervisor.close()


# --- accepted configs


@pytest.mark.parametrize(
    "members",
    [
        {"token": "x\r\nX-Evil: 1"},
        {"credentials": "x\r\nX-Evil: 1"},
        {"token": "x\n"},
        {"token": "x\x00"},
        {"token": "x\x7f"},
        {"token": ""},
        {"token": "ü"},
        {"credentials": "x" * 4097},
        {"schemes": ("Bearer\r\nX-Evil: 1",)},
        {"schemes": ("two words",)},
        {"schemes": ("",)},
        {"name": "a/b"},
        {"name": "a b"},
        {"name": "a\r\nb"},
        {"name": "x" * 129},
    ],
)
async def test_values_that_would_break_a_header_are_refused(post: Post, system: System, members: dict[str, Any]) -> None:
    mine = await a_task(system)
    with pytest.raises(InvalidParams) as caught:
        await post.set(mine, "http://127.0.0.1/", **members)
    assert "Evil" not in caught.value.message
    assert not await post.push.list(CALLER, mine)


async def test_a_url_that_is_refused_leaves_the_config_as_it_was(post: Post, system: System) -> None:
    mine = await a_task(system)
    await post.set(mine, "http://127.0.0.1/old")
    with pytest.raises(WebhookRejected, match=r"^webhook url rejected: "):
        await post.set(mine, "http://10.0.0.1/new")
    assert (await post.push.get(CALLER, mine, "c")).url == "http://127.0.0.1/old"


async def test_an_unknown_task_is_reported_before_a_bad_url(post: Post, system: System) -> None:
    for mine in (TaskId("nope"), await a_task(system, Caller("default", "somebody else"))):
        for call in (
            post.set(mine, "http://10.0.0.1/"),
            post.push.get(CALLER, mine),
            post.push.get(CALLER, mine, "c"),
            post.push.list(CALLER, mine),
            post.push.delete(CALLER, mine, "c"),
        ):
            with pytest.raises(TaskNotFound):
                await call


async def test_a_config_without_an_id_is_named_after_its_task(post: Post, system: System) -> None:
    mine = await a_task(system)
    with pytest.raises(PushConfigNotFound, match="no push config"):
        await post.push.get(CALLER, mine)
    await post.set(mine, "http://127.0.0.1/1", "first")
    assert (await post.push.get(CALLER, mine)).id == "first"
    assert (await post.set(mine, "http://127.0.0.1/2", "")).id == mine
    assert (await post.push.get(CALLER, mine)).url == "http://127.0.0.1/2"
    assert [config.id for config in await post.push.list(CALLER, mine)] == ["first", mine]


async def test_a_task_takes_configs_up_to_the_limit(post: Post, system: System) -> None:
    mine = await a_task(system)
    for number in range(10):
        await post.set(mine, "http://127.0.0.1/", str(number))
    with pytest.raises(InvalidParams, match="ROLECALL_MAX_PUSH_CONFIGS"):
        await post.set(mine, "http://127.0.0.1/", "more")
