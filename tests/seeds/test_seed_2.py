"""What callers of a fleet's endpoints rely on: lenient messages, resubscribing, many agents behind one server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.helpers.processes import HubProcess, start_hub, start_worker
from tests.seeds.conftest import WORKERS
from tests.seeds.door import NO_TASK, RawClient, data, message_v03, message_v10, texts
from tests.seeds.strangers import ScriptedAgent

A2A_PATH = "/a2a"


def test_s2_01_the_hub_listens_on_the_configured_port(hub: HubProcess, client: RawClient) -> None:
    assert str(hub.port) in client.get("/.well-known/agent-card.json").json()["url"]


@pytest.mark.parametrize("base", ["", "/agents/counter"])
def test_s2_02_the_card_has_the_same_bytes_at_its_old_address(client: RawClient, base: str) -> None:
    new, old = (client.get(f"{base}/.well-known/{name}").content for name in ("agent-card.json", "agent.json"))
    assert new == old
    assert json.loads(new)["name"]


@pytest.mark.parametrize("call", ["chosen by the caller", "", 12])
def test_s2_03_the_answer_has_the_callers_request_id(client: RawClient, call: str | int) -> None:
    params = message_v03("1", "counter")
    assert texts(client.answer("message/send", params, A2A_PATH, call=call)["result"]) == "0 "


@pytest.mark.parametrize("part", [{"text": "1"}, {"type": "text", "text": "1"}, {"kind": "text", "text": "1"}])
def test_s2_04_a_minimal_message_is_accepted(client: RawClient, part: dict[str, str]) -> None:
    task = client.call(
        "message/send", {"message": {"role": "user", "parts": [part]}, "metadata": {"role": "counter"}}, A2A_PATH
    )
    assert texts(task) == "0 "
    assert task["history"][0]["parts"] == [{"kind": "text", "text": "1"}]


def test_s2_05_a_message_without_an_id_gets_one(client: RawClient) -> None:
    bare = {"message": {"role": "user", "parts": [{"text": "x"}]}, "metadata": {"role": "mirror"}}
    task = client.call("message/send", bare, A2A_PATH)
    assert task["history"][0]["messageId"]
    assert data(task)["message"]["messageId"] == task["history"][0]["messageId"]


def test_s2_06_request_metadata_reaches_the_worker_and_its_skill_selects_the_role(client: RawClient) -> None:
    metadata = {"skill": "reflect", "priority": 3, "nested": {"kind": "x"}}
    task = client.call("message/send", {**message_v03("hi"), "metadata": metadata}, A2A_PATH)
    assert data(task)["metadata"] == metadata


def test_s2_06_a_skill_of_two_roles_is_an_error_that_names_them(client: RawClient) -> None:
    error = client.error("message/send", {**message_v03("hi"), "metadata": {"skill": "shared"}}, A2A_PATH)
    assert error["code"] == -32000
    assert "mirror" in error["message"]
    assert "twin" in error["message"]


def test_s2_07_a_message_waits_for_the_end_by_default(client: RawClient) -> None:
    task = client.call("message/send", message_v03("3 0.1", "counter"), A2A_PATH)
    assert (task["status"]["state"], texts(task)) == ("completed", "0 1 2 ")


def test_s2_08_a_result_has_its_kind(client: RawClient) -> None:
    assert client.call("message/send", message_v03("1", "counter"), A2A_PATH)["kind"] == "task"


def test_s2_09_usage_figures_of_a_task_are_in_its_metadata(client: RawClient, scripted: ScriptedAgent) -> None:
    """A2A has no member `data` of a task: the hub moves its content into the metadata."""
    used = {"usage": {"input_tokens": 12, "output_tokens": 30, "total_tokens": 42}, "durationMs": 4230}
    done = {"state": "completed", "timestamp": "2026-05-10T18:00:00Z"}
    script = json.dumps([{"kind": "task", "status": done, "data": used, "metadata": {"run": "r1"}}])
    task = client.call("message/send", message_v03(script, "parrot"), A2A_PATH)
    assert task["metadata"] == {**used, "run": "r1"}
    assert "data" not in task
    assert client.call("GetTask", {"id": task["id"]})["metadata"] == task["metadata"]


def test_s2_10_a_stream_starts_with_the_task_and_continues_with_updates(client: RawClient) -> None:
    kinds = [frame.result["kind"] for frame in client.stream("message/stream", message_v03("2", "counter"), A2A_PATH)]
    assert kinds[0] == "task"
    assert set(kinds[1:]) == {"status-update", "artifact-update"}
    assert kinds[-1] == "status-update"


def test_s2_11_every_frame_has_its_kind(client: RawClient) -> None:
    """Also its parts and messages."""
    for event in client.events("message/stream", message_v03("2", "counter"), A2A_PATH):
        assert event["kind"]
        parts = [*event.get("artifact", {}).get("parts", ()), *event.get("status", {}).get("message", {}).get("parts", ())]
        assert all(part["kind"] for part in parts)


def test_s2_12_tool_messages_of_an_agent_are_passed_on(client: RawClient, scripted: ScriptedAgent) -> None:
    words = [scripted.status("working", text, metadata={"tool": text}) for text in ("grep begins", "grep is done")]
    events = client.events(
        "message/stream", message_v03(json.dumps([*words, scripted.status("completed")]), "parrot"), A2A_PATH
    )
    updates = [event for event in events if event.get("status", {}).get("message")]
    assert [event["status"]["message"]["parts"][0]["text"] for event in updates] == ["grep begins", "grep is done"]
    assert [event["metadata"]["tool"] for event in updates] == ["grep begins", "grep is done"]


def test_s2_13_a_task_is_read_in_its_current_state(client: RawClient) -> None:
    task = client.send("counter", "4 0.15", configuration={"blocking": False})
    assert client.call("tasks/get", {"id": task["id"]}, A2A_PATH)["status"]["state"] == "working"
    assert texts(client.until(task["id"], "completed", path=A2A_PATH)) == "0 1 2 3 "


@pytest.mark.parametrize("with_cursor", [True, False], ids=["from its place", "as of now"])
def test_s2_14_resubscribing_after_a_cut_misses_nothing_and_repeats_nothing(client: RawClient, with_cursor: bool) -> None:
    with client.opened("message/stream", message_v03("12 0.05", "counter"), A2A_PATH) as stream:
        frames = iter(stream)
        task = next(frames).result["id"]
        seen = [next(frames) for _ in range(5)]
    headers = {"Last-Event-ID": str(seen[-1].id)} if with_cursor else {}
    first, *rest = client.stream("tasks/resubscribe", {"id": task}, A2A_PATH, **headers)
    assert first.result["kind"] == "task"
    assert "task" not in [frame.result["kind"] for frame in rest]
    whole = texts(first.result) + "".join(texts({"artifacts": [f.result.get("artifact", {"parts": []})]}) for f in rest)
    assert whole == "".join(f"{n} " for n in range(12))
    assert rest[-1].result["final"] is True
    numbers = [int(frame.id or 0) for frame in (first, *rest)]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    if with_cursor:
        assert numbers[0] == int(seen[-1].id or 0)


def test_s2_15_canceling_an_ended_task_is_refused_with_its_code(client: RawClient) -> None:
    task = client.call("message/send", message_v03("1", "counter"), A2A_PATH)
    error = client.error("tasks/cancel", {"id": task["id"]}, A2A_PATH)
    assert (error["code"], "ended" in error["message"]) == (-32002, True)


def test_s2_24_a_workers_extensions_are_on_its_roles_card(client: RawClient, scripted: ScriptedAgent) -> None:
    extension = {"uri": "https://example.com/ext/cost/v1", "description": "Says what it costs", "required": False}
    card = {"name": "x", "capabilities": {"streaming": True, "extensions": [extension]}}
    with client.enrolled("extended:x", scripted.url, card=card):
        shown = client.get("/agents/extended/.well-known/agent-card.json").json()["capabilities"]["extensions"]
    assert extension in shown


def test_s2_27_comments_keep_a_silent_stream_open(client: RawClient) -> None:
    """Every 15 s by default, here every 0.3 s."""
    with client.opened("message/stream", message_v03("2 0.7", "counter"), A2A_PATH) as stream:
        assert "no-cache" in stream.headers["cache-control"]
        assert stream.headers["x-accel-buffering"] == "no"
        frames = list(stream)
    assert frames[-1].result["status"]["state"] == "completed"
    assert len(stream.keep_alive_lines) >= 2
    assert set(stream.keep_alive_lines) == {": keep-alive"}


def test_s2_31_a_caller_that_disconnects_does_not_stop_its_task(client: RawClient) -> None:
    with client.opened("message/stream", message_v03("5 0.1", "counter"), A2A_PATH) as stream:
        task = next(iter(stream)).result["id"]
    assert texts(client.until(task, "completed", path=A2A_PATH)) == "0 1 2 3 4 "


def test_s2_32_tasks_survive_a_killed_hub_and_questions_stay_open(tmp_path: Path) -> None:
    """Killed, not stopped. A running task continues if its worker replays, and fails with a reason if not."""
    with start_hub(tmp_path / "hub") as hub, start_worker(WORKERS, "asker:here", hub.url, log=tmp_path / "w"):
        with RawClient(hub.url) as client, ScriptedAgent() as scripted, client.enrolled("parrot:p", scripted.url):
            done = client.send("counter", "2")
            question = client.send("asker", "begin")
            running = client.send("counter", "30 0.1", configuration={"blocking": False})
            lost = client.send("parrot", json.dumps([60]), configuration={"blocking": False})
        hub.kill9()
        with start_hub(hub.data_dir, port=hub.port, worker_silence=1), RawClient(hub.url) as client:
            assert client.call("tasks/get", {"id": done["id"]}) == done
            assert client.call("tasks/get", {"id": question["id"]})["status"]["state"] == "input-required"
            assert texts(client.until(running["id"], "completed")) == "".join(f"{n} " for n in range(30))
            failed = client.until(lost["id"], "failed")
            assert failed["metadata"]["rolecall"]["reason"]
            answered = client.send("asker", "red", taskId=question["id"])
            assert (answered["id"], texts(answered)) == (question["id"], "red it is")


def test_s2_33_a_question_ends_the_stream_and_its_answer_continues_the_task(client: RawClient) -> None:
    *_, last = question = client.events("message/stream", message_v03("begin", "asker"), A2A_PATH)
    assert (last["status"]["state"], last["final"]) == ("input-required", True)
    answer = message_v03("green", "asker", taskId=question[0]["id"], contextId=question[0]["contextId"])
    first, *rest = client.events("message/stream", answer, A2A_PATH)
    assert (first["kind"], first["id"], first["status"]["state"]) == ("task", question[0]["id"], "working")
    assert rest[-1]["status"]["state"] == "completed"
    assert texts(client.call("tasks/get", {"id": first["id"]})) == "green it is"


@pytest.mark.parametrize(
    ("method", "params", "version", "code"),
    [
        ("SendMessage", {"message": "hi"}, None, -32602),
        ("SendMessage", {"message": {"role": "ROLE_USER", "parts": []}}, "1.0", -32602),
        ("SendMessage", ["message"], "7.1", -32602),
        ("SendMassage", {}, "1.0", -32601),
        ("SendMessage", message_v10("1", "counter"), "7.1", -32009),
        ("tasks/get", {"id": NO_TASK}, "2.0", -32009),
    ],
)
def test_s2_34_versions_are_checked_after_methods_and_params(
    client: RawClient, method: str, params: Any, version: str | None, code: int
) -> None:
    headers = {} if version is None else {"A2A-Version": version}
    assert client.code(method, params, A2A_PATH, **headers) == code


@pytest.mark.parametrize("version", [None, "1.0", "1.0.1", "0.3"])
def test_s2_34_the_method_name_decides_the_dialect_with_or_without_a_version(client: RawClient, version: str | None) -> None:
    headers = {} if version is None else {"A2A-Version": version}
    assert texts(client.call("SendMessage", message_v10("1", "counter"), A2A_PATH, **headers)["task"]) == "0 "


def test_s2_35_each_agent_of_the_fleet_has_its_card_and_its_address(client: RawClient) -> None:
    card = client.get("/agents/mirror/.well-known/agent-card.json").json()
    assert {interface["url"] for interface in card["supportedInterfaces"]} == {
        f"{client.url}/agents/mirror/",
        f"{client.url}/agents/mirror",
    }
    task = client.call("message/send", message_v03(str(uuid4())), "/agents/mirror/a2a")
    assert data(task)["message"]["parts"] == task["history"][0]["parts"]
    of_other_role = client.error("tasks/get", {"id": task["id"]}, "/agents/counter/a2a")
    unknown = client.error("tasks/get", {"id": NO_TASK}, "/agents/counter/a2a")
    assert json.dumps(of_other_role).replace(task["id"], NO_TASK) == json.dumps(unknown)
