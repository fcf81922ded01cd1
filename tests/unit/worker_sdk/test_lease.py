"""The lease against a scripted registry: enrol, beat, recover, drain, withdraw."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.helpers.raw_server import RawServer
from tests.unit.worker_sdk.registry import Registry, listening, refusal
from worker_sdk import AuthError, Forbidden, Lease, LeaseState, RolecallError, Worker
from worker_sdk.errors import InstanceConflict
from worker_sdk.files.hub_files import HubStore
from worker_sdk.lease import url_towards, worker_name
from worker_sdk.run import exit_code

pytestmark = pytest.mark.virtual_time

Changes = list[tuple[LeaseState, str]]


def lease_at(server: RawServer, changes: Changes | None = None, **options: Any) -> Lease:
    seen: Changes = changes if changes is not None else []
    options.setdefault("backoff", (0.005, 0.02))
    return Lease("echo:a", url="http://127.0.0.1:1/", hub=server.url, on_change=lambda *change: seen.append(change), **options)


async def test_it_enrols_beats_with_its_load_and_withdraws_with_its_secret() -> None:
    registry = Registry()
    async with listening(registry) as server:
        lease = lease_at(server, capacity=4, in_flight=lambda: 3, card={"name": "echo"}, labels={"a": "b"})
        async with lease:
            await registry.until(lambda requests: len(requests) >= 3)
            assert lease.state is LeaseState.READY
        assert lease.state is LeaseState.GONE
    (put, path, offer), (post, beat_path, beat) = registry.requests[:2]
    assert (put, path) == ("PUT", "/registry/agents/echo/a")
    assert (offer["capacity"], offer["card"], offer["labels"], len(offer["boot"])) == (4, {"name": "echo"}, {"a": "b"}, 32)
    assert (post, beat_path) == ("POST", "/registry/agents/echo%3Aa/heartbeat")
    assert beat == {"epoch": 1, "lease": "s1", "in_flight": 3, "capacity": 4}
    assert registry.requests[-1] == ("DELETE", "/registry/agents/echo%3Aa", {"epoch": 1, "lease": "s1"})


@pytest.mark.parametrize(
    ("files", "store"),
    [
        ({"url": "https://hub.example/registry/files", "max_size": 7}, HubStore("https://hub.example/registry/files", 7)),
        (None, None),
        ({"url": 7, "max_size": 7}, None),
        ({"url": "https://hub.example"}, None),
        ([], None),
    ],
)
async def test_it_knows_where_the_files_of_its_hub_are(files: Any, store: HubStore | None) -> None:
    registry = Registry()
    registry.plan.append((200, {"epoch": 1, "lease": "s", "heartbeat_seconds": 60, "files": files}))
    async with listening(registry) as server, lease_at(server) as lease:
        await lease.ready()
        assert lease.store == store


async def test_an_unknown_lease_is_enrolled_again_at_once_under_the_same_boot() -> None:
    registry, changes = Registry(), Changes()
    async with listening(registry) as server, lease_at(server, changes, backoff=(60, 60)):
        await registry.until(lambda requests: registry.count("POST") == 1)
        registry.plan.append(refusal(404, "LEASE_UNKNOWN"))
        await registry.until(lambda requests: registry.count("PUT") == 2 and requests[-1][0] == "POST")
    offers = [body for method, _, body in registry.requests if method == "PUT"]
    assert offers[0]["boot"] == offers[1]["boot"]
    assert [state for state, _ in changes] == ["ready", "enrolling", "ready", "gone"]


async def test_a_credential_that_changes_is_offered_at_once() -> None:
    registry, credential = Registry(heartbeat=60), ["Bearer old"]
    async with listening(registry) as server, lease_at(server, authorization=lambda: credential[0]):
        await registry.until(lambda requests: registry.count("PUT") == 1)
        credential[0] = "Bearer newer"
        await registry.until(lambda requests: registry.count("PUT") == 2)
    offered = [body["authorization"] for method, _, body in registry.requests if method == "PUT"]
    assert offered == ["Bearer old", "Bearer newer"]


async def test_a_credential_that_could_not_be_offered_is_offered_again() -> None:
    registry, credential = Registry(heartbeat=60), ["Bearer old"]
    async with listening(registry) as server, lease_at(server, authorization=lambda: credential[0]) as lease:
        await lease.ready()
        registry.plan.append(refusal(503, "OVERLOADED"))
        credential[0] = "Bearer newer"
        await registry.until(lambda requests: registry.count("PUT") == 3)
    assert [body["authorization"] for method, _, body in registry.requests if method == "PUT"][1:] == ["Bearer newer"] * 2


async def test_a_superseded_lease_is_lost_and_sends_no_more_requests(caplog: pytest.LogCaptureFixture) -> None:
    registry, changes = Registry(), Changes()
    async with listening(registry) as server, lease_at(server, changes) as lease:
        await registry.until(lambda requests: registry.count("POST") == 1)
        registry.plan.append(refusal(409, "LEASE_SUPERSEDED"))
        await asyncio.wait_for(lease.given_up(), 5)
        assert (lease.superseded, lease.state) == (True, LeaseState.LOST)
        requests = len(registry.requests)
        await asyncio.sleep(0.06)
        assert len(registry.requests) == requests
    assert registry.count("DELETE") == 0
    assert [record.levelno for record in caplog.records if "taken over" in record.getMessage()] == [logging.ERROR]


async def test_a_conflict_at_enrolment_is_logged_once_and_retried_until_the_name_is_free(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = Registry()
    registry.plan.extend([refusal(409, "CONFLICT")] * 4)
    async with listening(registry) as server, lease_at(server) as lease:
        await asyncio.wait_for(lease.ready(), 5)
    assert registry.count("PUT") == 5
    warnings = [record for record in caplog.records if "refused: CONFLICT" in record.getMessage()]
    assert [record.levelno for record in warnings] == [logging.WARNING]


async def test_a_name_that_is_given_up_soon_is_taken_soon() -> None:
    registry = Registry()
    registry.plan.extend([refusal(409, "CONFLICT")] * 3)
    began = asyncio.get_running_loop().time()
    async with listening(registry) as server, Lease("echo:a", url="http://w:1", hub=server.url) as lease:
        await lease.ready()
    assert asyncio.get_running_loop().time() - began < 4


async def test_an_unreachable_hub_is_retried_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    registry, changes = Registry(), Changes()
    async with listening(registry) as gone:
        pass
    lease = lease_at(gone, changes)
    async with lease:
        async with asyncio.timeout(5):
            while not changes:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.15)
        assert lease.state is LeaseState.ENROLLING
    assert [state for state, _ in changes] == ["enrolling", "gone"]
    assert sum("No hub answers" in record.getMessage() for record in caplog.records) == 1


async def test_failed_beats_lose_the_lease_and_a_successful_one_restores_it() -> None:
    registry, changes = Registry(), Changes()
    async with listening(registry) as server, lease_at(server, changes):
        await registry.until(lambda requests: registry.count("POST") == 1)
        registry.plan.extend([(503, {"reason": "OVERLOADED", "detail": "full"})] * 3)
        await registry.until(lambda requests: registry.count("POST") == 6)
    assert [state for state, _ in changes] == ["ready", "lost", "ready", "gone"]
    assert registry.count("PUT") == 1


async def test_drain_beats_at_once_and_returns_when_the_hub_has_confirmed() -> None:
    registry = Registry(heartbeat=60)
    async with listening(registry) as server, lease_at(server) as lease:
        await asyncio.wait_for(lease.ready(), 5)
        await asyncio.wait_for(lease.drain(), 5)
        assert registry.requests[-1][2]["draining"] is True
        assert lease.state is LeaseState.DRAINING


async def test_draining_is_sent_again_after_the_hub_lost_the_lease() -> None:
    registry = Registry()
    async with listening(registry) as server, lease_at(server) as lease:
        await lease.ready()
        await lease.drain()
        registry.plan.append(refusal(404, "LEASE_UNKNOWN"))
        await registry.until(lambda requests: registry.count("PUT") == 2 and requests[-1][0] == "POST")
        assert registry.requests[-1][2]["draining"] is True


async def test_a_worker_that_enrols_again_while_draining_reports_it_at_once() -> None:
    """Waiting for the next heartbeat would let the hub send it calls."""
    registry = Registry(heartbeat=60)
    async with asyncio.timeout(3), listening(registry) as server, lease_at(server) as lease:
        await lease.ready()
        registry.plan.append(refusal(404, "LEASE_UNKNOWN"))
        await lease.drain(timeout=60)
        assert lease.state is LeaseState.DRAINING
    assert [(method, body.get("draining")) for method, _, body in registry.requests] == [
        ("PUT", None),
        ("POST", True),
        ("PUT", None),
        ("POST", True),
        ("DELETE", None),
    ]


async def test_a_worker_that_drains_before_enrolment_reports_it_at_once() -> None:
    registry = Registry(heartbeat=60)
    registry.plan.extend([(503, {"reason": "OVERLOADED", "detail": "full"})])
    async with asyncio.timeout(3), listening(registry) as server, lease_at(server, backoff=(0.2, 0.2)) as lease:
        await registry.until(lambda requests: registry.count("PUT") == 1)
        await lease.drain()
        assert lease.state is LeaseState.DRAINING
    assert [method for method, *_ in registry.requests] == ["PUT", "PUT", "POST", "DELETE"]


async def test_draining_does_not_wait_for_an_unreachable_hub() -> None:
    async with listening(Registry()) as gone:
        pass
    async with asyncio.timeout(0.9):
        # Its retry pauses are long, but leaving does not wait for them.
        async with lease_at(gone, backoff=(60, 60)) as lease:
            await asyncio.sleep(0.05)
            await lease.drain()


async def test_withdrawing_does_not_wait_for_an_unreachable_hub() -> None:
    async with asyncio.timeout(5), listening(Registry(heartbeat=60)) as server:
        leaving = lease_at(server, backoff=(60, 60))
        await leaving.__aenter__()
        await leaving.ready()
    async with asyncio.timeout(0.9):
        await leaving.drain()
        await leaving.__aexit__()
    assert leaving.state is LeaseState.GONE


async def test_a_silent_hub_delays_shutdown_only_briefly() -> None:
    registry = Registry(heartbeat=60)
    async with asyncio.timeout(7), listening(registry) as server, lease_at(server) as lease:
        await lease.ready()
        registry.silent = True
        await lease.drain()
    assert lease.state is LeaseState.GONE


async def test_a_silent_hub_gets_five_seconds_for_the_drain_and_one_more_for_the_withdrawal() -> None:
    registry, loop = Registry(heartbeat=60), asyncio.get_running_loop()
    async with listening(registry) as server:
        lease = lease_at(server)
        await lease.__aenter__()
        await lease.ready()
        registry.silent = True
        began = loop.time()
        await lease.drain()
        drained = loop.time()
        await lease.__aexit__()
    assert (round(drained - began, 2), round(loop.time() - drained, 2)) == (5, 1)


async def test_a_hub_that_refuses_is_asked_again_after_at_most_the_longest_pause() -> None:
    registry, loop = Registry(), asyncio.get_running_loop()
    registry.plan.extend([refusal(403, "FORBIDDEN")] * 10)
    began = loop.time()
    async with listening(registry) as server, lease_at(server, backoff=(0.1, 4)) as lease:
        await lease.ready()
    assert 20 <= loop.time() - began <= 40


async def test_another_reason_for_the_same_state_is_not_reported() -> None:
    registry, changes = Registry(), Changes()
    registry.plan.extend([refusal(404, "LEASE_UNKNOWN")] * 3)
    async with listening(registry) as server, lease_at(server, changes) as lease:
        await lease.ready()
    assert [state for state, _ in changes] == ["ready", "gone"]


async def test_leaving_as_a_probe_ends_ends_the_lease() -> None:
    probed = asyncio.Event()

    async def probe() -> bool:
        probed.set()
        return False

    async with listening(Registry()) as server, asyncio.timeout(5), lease_at(server, probe=probe) as lease:
        await probed.wait()
    assert lease.state is LeaseState.GONE


async def test_a_failing_probe_delays_enrolment_and_skips_beats(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "worker_sdk")
    registry, changes, alive, probes = Registry(), Changes(), asyncio.Event(), 0

    async def probe() -> bool:
        nonlocal probes
        probes += 1
        if probes == 2:
            raise ConnectionRefusedError
        return alive.is_set()

    async with asyncio.timeout(10), listening(registry) as server, lease_at(server, changes, probe=probe) as lease:
        while probes < 4:  # noqa: ASYNC110 - counts probes
            await asyncio.sleep(0.005)
        assert registry.requests == []
        alive.set()
        await asyncio.wait_for(lease.ready(), 5)
        alive.clear()
        beats, before = registry.count("POST"), probes
        while probes < before + 4:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert registry.count("POST") <= beats + 1
        assert lease.state is LeaseState.LOST
    lines = [record.message for record in caplog.records]
    expected = ("is trying to enrol at", "is enrolled at", "cannot renew its lease at", "is no longer enrolled at")
    assert all(words in line for words, line in zip(expected, lines, strict=True)), lines


async def test_the_beat_after_a_failed_probe_says_that_the_server_was_away() -> None:
    registry, answers = Registry(), iter([True, True, False, False])

    async def probe() -> bool:
        return next(answers, True)

    async with asyncio.timeout(10), listening(registry) as server, lease_at(server, probe=probe):
        await registry.until(lambda requests: len(requests) > 4)
    beats = [body for method, _, body in registry.requests if method == "POST"]
    assert [beat.get("was_away", False) for beat in beats[:4]] == [False, True, False, False]


async def test_the_token_of_the_environment_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLECALL_TOKEN", "t0p")
    registry = Registry()
    async with listening(registry) as server, lease_at(server) as lease:
        await asyncio.wait_for(lease.ready(), 5)
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer t0p"}


def test_the_advertised_address_is_reachable_from_the_hub() -> None:
    assert url_towards("http://127.0.0.1:8420", 9) == "http://127.0.0.1:9/"
    assert url_towards("http://localhost:8420", 9) == "http://127.0.0.1:9/"
    assert url_towards("http://[::1]:8420", 9) == "http://127.0.0.1:9/"


@pytest.mark.parametrize("with_url", [True, False])
async def test_under_another_server_a_worker_enrols_only_with_an_advertised_address(
    with_url: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, events_sent = Registry(), asyncio.Queue[str]()
    events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    worker = Worker("echo:a", concurrency=2)

    @worker.on_message
    async def echo(text: str) -> str:
        return text

    async def send(event: dict[str, Any]) -> None:
        events_sent.put_nowait(event["type"])

    async with listening(registry) as server:
        monkeypatch.setenv("ROLECALL_HUB", server.url)
        if with_url:
            monkeypatch.setenv("ROLECALL_ADVERTISE_URL", "http://10.0.0.7:9000/")
        lifespan = asyncio.create_task(worker({"type": "lifespan"}, events.get, send))
        events.put_nowait({"type": "lifespan.startup"})
        assert await events_sent.get() == "lifespan.startup.complete"
        if with_url:
            await registry.until(lambda requests: registry.count("POST") >= 1)
        events.put_nowait({"type": "lifespan.shutdown"})
        await asyncio.wait_for(lifespan, 5)
    assert events_sent.get_nowait() == "lifespan.shutdown.complete"
    assert registry.count("DELETE") == with_url
    if with_url:
        assert registry.requests[0][2]["card"]["url"] == registry.requests[0][2]["url"] == "http://10.0.0.7:9000/"
        assert registry.requests[-2][2]["draining"] is True


async def test_unset_fields_are_not_sent() -> None:
    registry = Registry()
    async with listening(registry) as server, lease_at(server):
        await registry.until(lambda requests: registry.count("POST") >= 1)
    (_, _, offer), (_, _, beat) = registry.requests[:2]
    assert set(offer) == {"url", "boot", "description", "labels"}
    assert beat == {"epoch": 1, "lease": "s1"}


async def test_set_fields_are_sent_at_enrolment() -> None:
    registry = Registry()
    known: dict[str, Any] = {
        "models": ("m1", "m2"),
        "ttl": 60.0,
        "description": "does things",
        "boot": "b1",
        "idempotent": True,
    }
    async with listening(registry) as server, lease_at(server, **known):
        await registry.until(lambda requests: len(requests) >= 1)
    offer = registry.requests[0][2]
    assert (offer["models_supported"], offer["ttl_seconds"]) == (["m1", "m2"], 60.0)
    assert (offer["description"], offer["boot"], offer["idempotent"]) == ("does things", "b1", True)


async def test_a_hub_that_never_knows_the_lease_is_retried_with_pauses() -> None:
    registry = Registry()
    registry.plan.extend([refusal(404, "LEASE_UNKNOWN")] * 200)
    async with listening(registry) as server, lease_at(server, backoff=(0.2, 0.2)):
        await registry.until(lambda requests: registry.count("PUT") >= 2)
        await asyncio.sleep(0.3)
    assert 2 <= registry.count("PUT") <= 6


async def test_an_incomplete_answer_still_counts_as_enrolment() -> None:
    registry = Registry()
    registry.plan.append((200, {"heartbeat_seconds": 0.01}))
    registry.plan.append((200, {"epoch": "seven", "lease": None, "heartbeat_seconds": "soon"}))
    registry.plan.append((200, {"epoch": 4, "lease": "s", "heartbeat_seconds": -1}))
    async with asyncio.timeout(5), listening(registry) as server, lease_at(server) as lease:
        await registry.until(lambda requests: registry.count("POST") >= 3)
        assert lease.state is LeaseState.READY
    beats = [(body["epoch"], body["lease"]) for method, _, body in registry.requests if method == "POST"]
    assert beats[:3] == [(0, None), (0, None), (4, "s")]


@pytest.mark.parametrize("host", ["localhost", "hub.localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_a_hub_on_this_machine_reaches_the_worker_on_loopback(host: str) -> None:
    assert url_towards(f"http://{host}:1", 9) == "http://127.0.0.1:9/"


def test_the_address_towards_a_remote_hub_comes_from_its_route() -> None:
    """0.0.0.0 routes to this machine on every network."""
    assert url_towards("http://0.0.0.0:1", 9) == "http://127.0.0.1:9/"


def test_an_ipv6_address_is_in_brackets() -> None:
    try:
        found = url_towards("http://[::]", 9)
    except OSError:
        pytest.skip("this machine has no IPv6")
    assert found == "http://[::1]:9/"


def test_the_instance_comes_from_argument_name_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_name("echo:a", None) == ("echo", "a")
    assert worker_name("echo:a", "b") == ("echo", "b")
    assert worker_name("echo:a:b", None) == ("echo", "a:b")
    role, made_up = worker_name("echo", None)
    assert (role, bool(made_up)) == ("echo", True)
    monkeypatch.setenv("ROLECALL_INSTANCE", "c")
    assert worker_name("echo", None) == ("echo", "c")
    assert worker_name("echo:a", None) == ("echo", "a")


def test_who_starts_a_worker_may_give_its_whole_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_name("echo", "echo:1") == ("echo", "1")
    assert worker_name("echo", "parrot:1") == ("echo", "parrot:1")
    monkeypatch.setenv("ROLECALL_INSTANCE", "echo:2")
    assert worker_name("echo", None) == ("echo", "2")
    assert worker_name("parrot", None) == ("parrot", "echo:2")


@pytest.mark.parametrize(
    ("role", "instance", "why"), [("Echo", None, "role"), ("agents", None, "role"), ("echo", "a b", "instance")]
)
def test_an_invalid_name_is_refused(role: str, instance: str | None, why: str) -> None:
    with pytest.raises(ValueError, match=f"cannot be an? {why}"):
        worker_name(role, instance)


@pytest.mark.parametrize(
    ("status", "reason", "kind", "code"),
    [
        (409, "CONFLICT", InstanceConflict, 3),
        (401, "UNAUTHENTICATED", AuthError, 4),
        (403, "FORBIDDEN", Forbidden, 4),
    ],
)
async def test_a_worker_that_is_refused_for_longer_than_a_lease_lasts_says_why_and_gives_up(
    caplog: pytest.LogCaptureFixture, status: int, reason: str, kind: type[RolecallError], code: int
) -> None:
    registry = Registry()
    registry.plan.extend([refusal(status, reason)] * 1000)
    clock = asyncio.get_running_loop().time
    async with listening(registry) as server, Lease("echo:a", url="http://w:1", hub=server.url, ttl=30) as lease:
        began = clock()
        await lease.given_up()
        assert 30 < clock() - began < 50
        assert (type(lease.refusal), lease.state, exit_code(lease)) == (kind, LeaseState.LOST, code)
    first, last, gone = [record.message for record in caplog.records]
    assert "is trying to enrol at" in first and first.endswith("This process tries again for 30 s.")
    assert "lost its lease at" in last and "refused for longer than a lease lasts" in last
    assert "was not enrolled at" in gone


async def test_a_refusal_that_ends_or_a_hub_that_goes_away_begins_the_time_anew() -> None:
    registry = Registry()
    refused = [refusal(403, "FORBIDDEN")] * 3
    granted = (200, {"epoch": 1, "lease": "s", "ttl_seconds": 1, "heartbeat_seconds": 0.1})
    registry.plan.extend([*refused, granted, *refused, granted, *refused, (503, {"reason": "OVERLOADED"}), *refused, granted])
    async with listening(registry) as server, lease_at(server, ttl=1, backoff=(0.1, 0.4)) as lease:
        await registry.until(lambda requests: len(requests) >= 15)
        assert lease.refusal is None
