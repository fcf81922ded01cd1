"""A receiver gets the bytes of files, or their URLs if its config was set so."""

from __future__ import annotations

import pytest

from rolecall.model.command import Target
from tests.flow.conftest import CALLER, System, shares
from tests.flow.push.conftest import DONE, Post, a_task, advance_until, logged, until
from tests.flow.test_files import stored
from tests.flow.test_files_by_reference import ACTIVE, BASE64, CONTENT, METHODS, artifact, ask, contents, part, url
from tests.helpers.receiver import Receiver
from tests.helpers.scripted import task


@pytest.mark.parametrize("dialect", ["0.1", "0.3", "1.0"])
async def test_a_receiver_gets_bytes_unless_it_wants_urls(post: Post, system: System, receiver: Receiver, dialect: str) -> None:
    file = await stored(system, CONTENT)
    plain, by_reference = await a_task(system), await a_task(system)
    await post.set(plain, receiver.url, dialect=dialect)
    await post.set(by_reference, receiver.url, dialect=dialect, by_reference=True)
    for one in (plain, by_reference):
        await logged(system, one, task("working"), artifact(part("0.3", at=url(file))))
        await logged(system, one, DONE)
    await until(lambda: {f"{one}.c.3" for one in (plain, by_reference)} <= set(receiver.ids))
    for one, expected in ((plain, BASE64), (by_reference, url(file))):
        found = [contents(body) for name, body in zip(receiver.ids, receiver.bodies, strict=True) if name.startswith(one)]
        assert {content for body in found for content in body} == {expected}


async def test_a_notice_whose_files_find_no_room_is_sent_later(post: Post, system: System, receiver: Receiver) -> None:
    content = bytes(150_000)
    room = shares(unsent=150_000)
    busy = post.other(shares=room)
    await post.supervisor.close()
    file = await stored(system, content)
    mine = await a_task(system)
    await busy.set(mine, receiver.url)
    with room.unsent.hold("default", 100_000):
        await logged(system, mine, task("working"), artifact(part("0.3", at=url(file))), DONE)
        await until(lambda: "failed" in busy.observer.outcomes)
        assert receiver.cursors == [1]
    await advance_until(busy, lambda: receiver.cursors[-1:] == [3])
    assert receiver.cursors == [1, 2, 3]
    await busy.supervisor.close()


@pytest.mark.parametrize("dialect", METHODS)
async def test_a_config_is_set_with_the_extension_of_its_request(system: System, dialect: str) -> None:
    await system.enrol("echo:a")
    system.forwarder.plan("echo:a", task("input-required"))
    done = await system.send()
    hook = {"url": "https://127.0.0.1:1/hook", "id": "c"}
    params = {"taskId": done["id"], **hook} if dialect == "1.0" else {"id": done["id"], "pushNotificationConfig": hook}
    methods = {"0.1": "tasks/pushNotification/set", "0.3": "tasks/pushNotificationConfig/set"}
    method = methods.get(dialect, "CreateTaskPushNotificationConfig")
    (answer,) = await ask(system, method, params, dialect=dialect, headers=ACTIVE)
    assert "code" not in answer, answer
    (kept,) = await system.engine.pushes.list(CALLER, (await system.hub.task(CALLER, done["id"], Target())).id)
    assert kept.by_reference and not kept.numbers
