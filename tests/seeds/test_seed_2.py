"""Lenient messages, resubscribing, and agents behind one front: what callers of a fleet's endpoints rely on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.helpers.processes import HubProcess, start_hub, start_worker
from tests.seeds.conftest import WORKERS
from tests.seeds.door import NO_TASK, Door, asked, data, said, texts
from tests.seeds.strangers import Parrot

FLEET = "/a2a"


def test_s2_01_the_port_is_the_one_that_is_set(hub: HubProcess, door: Door) -> None:
    assert str(hub.port) in door.get("/.well-known/agent-card.json").json()["url"]


@pytest.mark.parametrize("base", ["", "/agents/counter"])
def test_s2_02_the_card_is_the_same_to_the_byte_at_its_old_address(door: Door, base: str) -> None:
    new, old = (door.get(f"{base}/.well-known/{name}").content for name in ("agent-card.json", "agent.json"))
    assert new == old
    assert json.loads(new)["name"]


@pytest.mark.parametrize("call", ["chosen by the caller", "", 12])
def test_s2_03_the_callers_own_request_id_is_answered(door: Door, call: str | int) -> None:
    params = said("1", "counter")
    assert texts(door.answer("message/send", params, FLEET, call=call)["result"]) == "0 "


@pytest.mark.parametrize("part", [{"text": "1"}, {"type": "text", "text": "1"}, {"kind": "text", "text": "1"}])
def test_s2_04_a_bare_message_is_understood(door: Door, part: dict[str, str]) -> None:
    task = door.call("message/send", {"message": {"role": "user", "parts": [part]}, "metadata": {"role": "counter"}}, FLEET)
    assert texts(task) == "0 "
    assert task["history"][0]["parts"] == [{"kind": "text", "text": "1"}]


def test_s2_05_a_message_without_an_id_gets_one(door: Door) -> None:
    bare = {"message": {"role": "user", "parts": [{"text": "x"}]}, "metadata": {"role": "mirror"}}
    task = door.call("message/send", bare, FLEET)
    assert task["history"][0]["messageId"]
    assert data(task)["message"]["messageId"] == task["history"][0]["messageId"]


def test_s2_06_metadata_of_the_request_reaches_the_worker_and_its_skill_finds_the_role(door: Door) -> None:
    said_so = {"skill": "reflect", "priority": 3, "nested": {"kind": "x"}}
    task = door.call("message/send", {**said("hi"), "metadata": said_so}, FLEET)
    assert data(task)["metadata"] == said_so


def test_s2_06_a_skill_of_two_roles_is_an_error_that_names_them(door: Door) -> None:
    error = door.error("message/send", {**said("hi"), "metadata": {"skill": "shared"}}, FLEET)
    assert error["code"] == -32000
    assert "mirror" in error["message"]
    assert "twin" in error["message"]


def test_s2_07_a_message_waits_for_its_end_by_itself(door: Door) -> None:
    task = door.call("message/send", said("3 0.1", "counter"), FLEET)
    assert (task["status"]["state"], texts(task)) == ("completed", "0 1 2 ")


def test_s2_08_a_result_says_what_it_is(door: Door) -> None:
    assert door.call("message/send", said("1", "counter"), FLEET)["kind"] == "task"


def test_s2_09_what_a_task_has_used_is_found_in_its_metadata(door: Door, parrot: Parrot) -> None:
    """A member `data` of a task is no part of A2A: what an agent puts there moves to where every reader may look."""
    used = {"usage": {"input_tokens": 12, "output_tokens": 30, "total_tokens": 42}, "durationMs": 4230}
    done = {"state": "completed", "timestamp": "2026-05-10T18:00:00Z"}
    script = json.dumps([{"kind": "task", "status": done, "data": used, "metadata": {"run": "r1"}}])
    task = door.call("message/send", said(script, "parrot"), FLEET)
    assert task["metadata"] == {**used, "run": "r1"}
    assert "data" not in task
    assert door.call("GetTask", {"id": task["id"]})["metadata"] == task["metadata"]


def test_s2_10_a_stream_opens_with_the_task_and_then_tells_what_changes(door: Door) -> None:
    kinds = [frame.result["kind"] for frame in door.stream("message/stream", said("2", "counter"), FLEET)]
    assert kinds[0] == "task"
    assert set(kinds[1:]) == {"status-update", "artifact-update"}
    assert kinds[-1] == "status-update"


def test_s2_11_every_frame_says_what_it_is(door: Door) -> None:
    """Also the parts and messages within."""
    for event in door.events("message/stream", said("2", "counter"), FLEET):
        assert event["kind"]
        held = [*event.get("artifact", {}).get("parts", ()), *event.get("status", {}).get("message", {}).get("parts", ())]
        assert all(part["kind"] for part in held)


def test_s2_12_what_an_agent_says_of_its_tools_passes(door: Door, parrot: Parrot) -> None:
    words = [parrot.status("working", text, metadata={"tool": text}) for text in ("grep begins", "grep is done")]
    events = door.events("message/stream", said(json.dumps([*words, parrot.status("completed")]), "parrot"), FLEET)
    heard = [event for event in events if event.get("status", {}).get("message")]
    assert [event["status"]["message"]["parts"][0]["text"] for event in heard] == ["grep begins", "grep is done"]
    assert [event["metadata"]["tool"] for event in heard] == ["grep begins", "grep is done"]


def test_s2_13_a_task_is_fetched_as_it_stands(door: Door) -> None:
    task = door.send("counter", "4 0.15", configuration={"blocking": False})
    assert door.call("tasks/get", {"id": task["id"]}, FLEET)["status"]["state"] == "working"
    assert texts(door.until(task["id"], "completed", path=FLEET)) == "0 1 2 3 "


@pytest.mark.parametrize("with_cursor", [True, False], ids=["from its place", "as of now"])
def test_s2_14_resubscribing_after_a_cut_misses_nothing_and_repeats_nothing(door: Door, with_cursor: bool) -> None:
    with door.opened("message/stream", said("12 0.05", "counter"), FLEET) as stream:
        frames = iter(stream)
        task = next(frames).result["id"]
        seen = [next(frames) for _ in range(5)]
    headers = {"Last-Event-ID": str(seen[-1].id)} if with_cursor else {}
    first, *rest = door.stream("tasks/resubscribe", {"id": task}, FLEET, **headers)
    assert first.result["kind"] == "task"
    assert "task" not in [frame.result["kind"] for frame in rest]
    whole = texts(first.result) + "".join(texts({"artifacts": [f.result.get("artifact", {"parts": []})]}) for f in rest)
    assert whole == "".join(f"{n} " for n in range(12))
    assert rest[-1].result["final"] is True
    numbers = [int(frame.id or 0) for frame in (first, *rest)]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    if with_cursor:
        assert numbers[0] == int(seen[-1].id or 0)


def test_s2_15_canceling_an_ended_task_is_refused_with_its_code(door: Door) -> None:
    task = door.call("message/send", said("1", "counter"), FLEET)
    error = door.error("tasks/cancel", {"id": task["id"]}, FLEET)
    assert (error["code"], "ended" in error["message"]) == (-32002, True)


def test_s2_24_a_workers_extensions_stand_on_its_roles_card(door: Door, parrot: Parrot) -> None:
    extension = {"uri": "https://example.com/ext/cost/v1", "description": "Says what it costs", "required": False}
    card = {"name": "x", "capabilities": {"streaming": True, "extensions": [extension]}}
    with door.enrolled("extended:x", parrot.url, card=card):
        shown = door.get("/agents/extended/.well-known/agent-card.json").json()["capabilities"]["extensions"]
    assert shown == [extension]


def test_s2_27_a_quiet_stream_is_kept_open_by_comments(door: Door) -> None:
    """Every 15 s by default, here every 0.3 s."""
    with door.opened("message/stream", said("2 0.7", "counter"), FLEET) as stream:
        assert "no-cache" in stream.headers["cache-control"]
        assert stream.headers["x-accel-buffering"] == "no"
        frames = list(stream)
    assert frames[-1].result["status"]["state"] == "completed"
    assert len(stream.comments) >= 2
    assert set(stream.comments) == {": keep-alive"}


def test_s2_31_a_caller_that_leaves_stops_nothing(door: Door) -> None:
    with door.opened("message/stream", said("5 0.1", "counter"), FLEET) as stream:
        task = next(iter(stream)).result["id"]
    assert texts(door.until(task, "completed", path=FLEET)) == "0 1 2 3 4 "


def test_s2_32_tasks_outlive_the_hub_and_questions_stay_open(tmp_path: Path) -> None:
    """Killed, not stopped. What was at work goes on where its worker replays, and fails with a reason where it cannot."""
    with start_hub(tmp_path / "hub") as hub, start_worker(WORKERS, "asker:here", hub.url, log=tmp_path / "w"):
        with Door(hub.url) as door, Parrot() as parrot, door.enrolled("parrot:p", parrot.url):
            done = door.send("counter", "2")
            question = door.send("asker", "begin")
            running = door.send("counter", "30 0.1", configuration={"blocking": False})
            lost = door.send("parrot", json.dumps([60]), configuration={"blocking": False})
        hub.kill9()
        with start_hub(hub.data_dir, port=hub.port, worker_silence=1), Door(hub.url) as door:
            assert door.call("tasks/get", {"id": done["id"]}) == done
            assert door.call("tasks/get", {"id": question["id"]})["status"]["state"] == "input-required"
            assert texts(door.until(running["id"], "completed")) == "".join(f"{n} " for n in range(30))
            failed = door.until(lost["id"], "failed")
            assert failed["metadata"]["rolecall"]["reason"]
            answered = door.send("asker", "red", taskId=question["id"])
            assert (answered["id"], texts(answered)) == (question["id"], "red it is")


def test_s2_33_a_question_ends_the_stream_and_its_answer_goes_on_in_the_same_task(door: Door) -> None:
    *_, last = question = door.events("message/stream", said("begin", "asker"), FLEET)
    assert (last["status"]["state"], last["final"]) == ("input-required", True)
    answer = said("green", "asker", taskId=question[0]["id"], contextId=question[0]["contextId"])
    first, *rest = door.events("message/stream", answer, FLEET)
    assert (first["kind"], first["id"], first["status"]["state"]) == ("task", question[0]["id"], "working")
    assert rest[-1]["status"]["state"] == "completed"
    assert texts(door.call("tasks/get", {"id": first["id"]})) == "green it is"


@pytest.mark.parametrize(
    ("method", "params", "version", "code"),
    [
        ("SendMessage", {"message": "hi"}, None, -32602),
        ("SendMessage", {"message": {"role": "ROLE_USER", "parts": []}}, "1.0", -32602),
        ("SendMessage", ["message"], "7.1", -32602),
        ("SendMassage", {}, "1.0", -32601),
        ("SendMessage", asked("1", "counter"), "7.1", -32009),
        ("tasks/get", {"id": NO_TASK}, "2.0", -32009),
    ],
)
def test_s2_34_versions_are_told_apart_after_names_and_shapes(
    door: Door, method: str, params: Any, version: str | None, code: int
) -> None:
    headers = {} if version is None else {"A2A-Version": version}
    assert door.code(method, params, FLEET, **headers) == code


@pytest.mark.parametrize("version", [None, "1.0", "1", "1.1", "0.3"])
def test_s2_34_the_name_of_the_method_tells_the_dialect_with_or_without_a_version(door: Door, version: str | None) -> None:
    headers = {} if version is None else {"A2A-Version": version}
    assert texts(door.call("SendMessage", asked("1", "counter"), FLEET, **headers)["task"]) == "0 "


def test_s2_35_each_agent_of_the_fleet_has_its_card_and_its_address(door: Door) -> None:
    card = door.get("/agents/mirror/.well-known/agent-card.json").json()
    assert {interface["url"] for interface in card["supportedInterfaces"]} == {
        f"{door.url}/agents/mirror/",
        f"{door.url}/agents/mirror",
    }
    task = door.call("message/send", said(str(uuid4())), "/agents/mirror/a2a")
    assert data(task)["message"]["parts"] == task["history"][0]["parts"]
    elsewhere = door.error("tasks/get", {"id": task["id"]}, "/agents/counter/a2a")
    unknown = door.error("tasks/get", {"id": NO_TASK}, "/agents/counter/a2a")
    assert json.dumps(elsewhere).replace(task["id"], NO_TASK) == json.dumps(unknown)
