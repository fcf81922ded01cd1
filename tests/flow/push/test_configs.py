"""What may be set, and where its secrets stand."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from hub.identity.vault import SealingVault, random_key
from rolecall.errors import InvalidParams, PushConfigNotFound, TaskNotFound, WebhookRejected
from rolecall.model.ids import Caller, TaskId
from rolecall.model.push import PushConfig
from tests.flow.conftest import ME, House
from tests.flow.push.conftest import BODY_COMPLETE, DONE, Post, a_task, logged, post_of, retried, until
from tests.helpers.receiver import Receiver
from tests.helpers.scripted import task


async def test_secrets_go_out_as_they_came_in_and_stand_nowhere_else(
    post: Post, house: House, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    mine = await a_task(house)
    receiver.then(500, 404)
    kept = await post.set(mine, receiver.url, token="tok-SECRET", schemes=("Basic",), credentials="cred-SECRET")
    await logged(house, mine, task("working"), DONE)
    await retried(post, lambda: len(receiver.got) == 3)
    headers = receiver.got[-1].headers
    assert (headers["authorization"], headers["x-a2a-notification-token"]) == ("Basic cred-SECRET", "tok-SECRET")
    (stored,) = await house.engine.pushes.list(ME, mine)
    shown = [kept, await post.push.get(ME, mine, "c"), *(await post.push.list(ME, mine)), stored]
    shown += [stored.token, stored.credentials, *(await post.push.dead_letters(ME)).letters]
    shown += [record.__dict__ for record in caplog.records]
    assert "SECRET" not in repr(shown)
    assert (kept.token, kept.credentials, kept.schemes) == (None, None, ("Basic",))
    assert "SECRET" not in repr(PushConfig(mine, "c", "u", "0.3", token="SECRET", credentials="SECRET"))


async def test_a_secret_that_cannot_be_read_is_a_failure_like_any(post: Post, house: House, receiver: Receiver) -> None:
    """The right key may come back with the next start."""
    mine = await a_task(house)
    await post.set(mine, receiver.url, token="T")
    await post.supervisor.close()
    stranger = post_of(house, post.client, post.guard, vault=SealingVault(random_key()))
    await logged(house, mine, BODY_COMPLETE)
    await until(lambda: stranger.observer.outcomes == ["failed"])
    await stranger.supervisor.close()
    assert not receiver.got
    right = post.other()
    await retried(right, lambda: receiver.taken == [1])
    await right.supervisor.close()


# --- what may be set


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
async def test_what_could_break_a_head_is_refused_when_it_is_set(post: Post, house: House, members: dict[str, Any]) -> None:
    mine = await a_task(house)
    with pytest.raises(InvalidParams) as caught:
        await post.set(mine, "http://127.0.0.1/", **members)
    assert "Evil" not in caught.value.message
    assert not await post.push.list(ME, mine)


async def test_a_url_that_is_refused_leaves_the_config_as_it_was(post: Post, house: House) -> None:
    mine = await a_task(house)
    await post.set(mine, "http://127.0.0.1/old")
    with pytest.raises(WebhookRejected, match=r"^webhook url rejected: "):
        await post.set(mine, "http://10.0.0.1/new")
    assert (await post.push.get(ME, mine, "c")).url == "http://127.0.0.1/old"


async def test_an_unknown_task_is_unknown_before_its_url_is_judged(post: Post, house: House) -> None:
    for mine in (TaskId("nope"), await a_task(house, Caller("default", "somebody else"))):
        for call in (
            post.set(mine, "http://10.0.0.1/"),
            post.push.get(ME, mine),
            post.push.get(ME, mine, "c"),
            post.push.list(ME, mine),
            post.push.delete(ME, mine, "c"),
        ):
            with pytest.raises(TaskNotFound):
                await call


async def test_a_config_without_an_id_is_named_after_its_task(post: Post, house: House) -> None:
    mine = await a_task(house)
    with pytest.raises(PushConfigNotFound, match="no push config"):
        await post.push.get(ME, mine)
    await post.set(mine, "http://127.0.0.1/1", "first")
    assert (await post.push.get(ME, mine)).id == "first"
    assert (await post.set(mine, "http://127.0.0.1/2", "")).id == mine
    assert (await post.push.get(ME, mine)).url == "http://127.0.0.1/2"
    assert [config.id for config in await post.push.list(ME, mine)] == ["first", mine]


async def test_a_task_takes_so_many_configs_and_no_more(post: Post, house: House) -> None:
    mine = await a_task(house)
    for number in range(10):
        await post.set(mine, "http://127.0.0.1/", str(number))
    with pytest.raises(InvalidParams, match="ROLECALL_MAX_PUSH_CONFIGS"):
        await post.set(mine, "http://127.0.0.1/", "more")
