"""What is wrong with a body or a query is said by member and reason, and never in a library's words."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from msgspec import Struct
from pydantic import BaseModel

from hub.inbound.api import requests
from hub.inbound.api.offers import read_beat, read_proof
from hub.inbound.api.requests import (
    AgentFilter,
    DeadLetterQuery,
    Enrolment,
    FeedQuery,
    FlatEnrolment,
    Heartbeat,
    Proof,
    ProofInQuery,
    TaskFilter,
)
from hub.inbound.api.validation import Body, Query, members_of, validate
from rolecall.errors import HubError, InvalidParams, OfferInvalid
from rolecall.model.a2a import TaskState
from rolecall.model.worker import Beat, Health, LeaseProof

URL = "http://w/"
ROLE_REASON = "must be 1 to 63 of a-z, 0-9, '.', '_', '-', begin with a letter or digit, and not be a reserved word"
INSTANCE_REASON = "must be 1 to 127 of letters, digits, '.', '_', ':', '-', and begin with a letter or digit"
COUNT = "must be a whole number from {} to 1000000000"


def refusal(kind: type[BaseModel] | type[Struct], document: dict[str, Any], error: type[HubError] = OfferInvalid) -> str:
    with pytest.raises(error) as caught:
        validate(kind, document)
    return str(caught.value)


@pytest.mark.parametrize(
    ("member", "value", "reason"),
    [
        ("url", None, "is required, as a string"),
        ("url", "", "is required, as a string"),
        ("url", 7, "is required, as a string"),
        ("url", "x" * 2049, "must be at most 2048 characters, without NUL"),
        ("url", "http://w/\0", "must be at most 2048 characters, without NUL"),
        ("boot", 7, "must be a string"),
        ("boot", "b" * 129, "must be at most 128 characters, without NUL"),
        ("boot", "b\0", "must be at most 128 characters, without NUL"),
        ("description", ["d"], "must be a string"),
        ("description", "d" * 1001, "must be at most 1000 characters, without NUL"),
        ("card", [], "must be an object"),
        ("card", "", "must be an object"),
        ("capabilities", [], "must be an object"),
        ("capacity", 0, COUNT.format(1)),
        ("capacity", 1.5, COUNT.format(1)),
        ("capacity", True, COUNT.format(1)),
        ("capacity", "4", COUNT.format(1)),
        ("capacity", 10**30, COUNT.format(1)),
        ("labels", [], "must be an object of at most 32 short strings"),
        ("labels", {"a": 1}, "must be an object of at most 32 short strings"),
        ("labels", {"a" * 129: ""}, "must be an object of at most 32 short strings"),
        ("labels", {str(n): "" for n in range(33)}, "must be an object of at most 32 short strings"),
        ("models_supported", {}, "must be a list of at most 100 short strings"),
        ("models_supported", [1], "must be a list of at most 100 short strings"),
        ("models_supported", ["m"] * 101, "must be a list of at most 100 short strings"),
        ("models_supported", ["m" * 201], "must be a list of at most 100 short strings"),
        ("idempotent", "yes", "must be true or false"),
        ("idempotent", 1, "must be true or false"),
        ("authorization", 7, "must be a string"),
        ("authorization", "a" * 4097, "must be at most 4096 characters, without NUL"),
        ("authorization", "a\nb", "must be one line of ASCII, as an Authorization header has it"),
        ("authorization", "a\n", "must be one line of ASCII, as an Authorization header has it"),
        ("authorization", "é", "must be one line of ASCII, as an Authorization header has it"),
        ("ttl_seconds", -1, "must be a number from 0 to 1e+09"),
        ("ttl_seconds", "9", "must be a number from 0 to 1e+09"),
        ("ttl_seconds", True, "must be a number from 0 to 1e+09"),
        ("ttl_seconds", 10**400, "must be a number from 0 to 1e+09"),
        ("name", 7, "must be a string"),
        ("name", "a" * 201, "must be at most 200 characters, without NUL"),
        ("name", "a\0", "must be at most 200 characters, without NUL"),
        ("name", "a:", "has no valid instance behind its colon"),
        ("role", 7, "must be a string"),
        ("role", "A", ROLE_REASON),
        ("role", "agents", ROLE_REASON),
        ("instance_id", 7, "must be a string"),
        ("instance_id", "-", INSTANCE_REASON),
        ("instance_id", "a\n", INSTANCE_REASON),
    ],
)
def test_a_refused_enrolment_names_member_and_reason(member: str, value: Any, reason: str) -> None:
    assert refusal(FlatEnrolment, {"url": URL, member: value}) == f"{member}: {reason}."


def test_a_missing_member_is_named() -> None:
    assert refusal(Enrolment, {"boot": "b"}) == "url: is required, as a string."


@pytest.mark.parametrize(
    ("card", "text"),
    [
        ({"skills": 1}, "card.skills: must be a list of at most 100 objects."),
        ({"skills": [{}, 1]}, "card.skills: must be a list of at most 100 objects."),
        ({"skills": [{}] * 101}, "card.skills: must be a list of at most 100 objects."),
        ({"skills": [{}, {"tags": "t"}]}, "card.skills.tags: must be a list of strings."),
        ({"capabilities": []}, "card.capabilities: must be an object."),
    ],
)
def test_a_member_of_the_card_is_named_with_its_path(card: dict[str, Any], text: str) -> None:
    assert refusal(Enrolment, {"url": URL, "card": card}) == text


@pytest.mark.parametrize(
    ("member", "value", "reason"),
    [
        *(("epoch", value, COUNT.format(0)) for value in (-1, 1.5, True, "3", 10**9 + 1, 10**30, [], {})),
        ("lease", 7, "must be a string"),
        ("lease", "s" * 257, "must be at most 256 characters, without NUL"),
        ("lease", "s\0", "must be at most 256 characters, without NUL"),
        *(("in_flight", value, COUNT.format(0)) for value in (-1, 0.5, False, "0")),
        *(("capacity", value, COUNT.format(1)) for value in (0, 0.0, True)),
        *((name, value, "must be true or false") for name in ("draining", "was_away") for value in (1, 0.0, "true", [])),
    ],
)
def test_a_refused_heartbeat_names_member_and_reason(member: str, value: Any, reason: str) -> None:
    assert refusal(Heartbeat, {"epoch": 1, member: value}) == f"{member}: {reason}."


@pytest.mark.parametrize("kind", [Enrolment, FlatEnrolment])
def test_null_is_absent_and_unknown_members_are_ignored(kind: type[Enrolment]) -> None:
    document = {name: None for name in members_of(kind)} | {"url": URL, "unknown": [1]}
    assert validate(kind, document) == validate(kind, {"url": URL})


@pytest.mark.parametrize("document", [{}, {"unknown": [1]}, dict.fromkeys(members_of(Heartbeat))])
def test_a_heartbeat_may_report_nothing(document: dict[str, Any]) -> None:
    heartbeat = validate(Heartbeat, document)
    assert (read_proof(heartbeat), read_beat(heartbeat)) == (LeaseProof(None, None), Beat())


def test_a_card_keeps_its_unknown_members_in_their_order() -> None:
    card = {"z": 1, "skills": [{"y": 2, "tags": ["t"]}], "capabilities": {"x": 3}, "a": 4}
    kept = validate(Enrolment, {"url": URL, "card": card}).card
    assert kept is not None
    assert [*kept.items()] == [*card.items()]


def test_millions_of_wrong_members_cost_no_memory() -> None:
    documents = [{"labels": dict.fromkeys(map(str, range(100_000)), 1)}, {"models_supported": [1] * 100_000}]
    tracemalloc.start()
    try:
        for document in documents:
            refusal(Enrolment, {"url": URL, **document})
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("kind", "query", "text"),
    [
        *(
            (AgentFilter, {"limit": text}, '"limit" must be a whole number from 1 to 1000.')
            for text in ("0", "1001", "", "x", "+1", " 1", "1.0", "1_0", "²", "٣", "0" * 19 + "1", "1" * 5000)
        ),
        (AgentFilter, {"state": "x"}, '"state" must be one of ready, suspect, failing, draining.'),
        (AgentFilter, {"state": ""}, '"state" must be one of ready, suspect, failing, draining.'),
        (DeadLetterQuery, {"limit": "101"}, '"limit" must be a whole number from 1 to 100.'),
        (FeedQuery, {"after": "x"}, '"after" must be a whole number from 0 to 1000000000000000000.'),
        (FeedQuery, {"last_event_id": "x"}, '"Last-Event-ID" must be a whole number from 0 to 1000000000000000000.'),
    ],
)
def test_a_refused_query_names_member_and_reason(kind: type[Query], query: dict[str, str], text: str) -> None:
    assert refusal(kind, query, InvalidParams) == text


def test_the_states_of_tasks_are_listed() -> None:
    for wrong in ("x", "", "working,", "working,x"):
        text = refusal(TaskFilter, {"state": [wrong]}, InvalidParams)
        assert text.startswith('"state" must be one or several of submitted, working, ')


def test_several_states_of_tasks_are_repeated_or_separated_by_commas() -> None:
    states = validate(TaskFilter, {"state": ["working,failed", "working", "completed"]}).state
    assert states == (TaskState.WORKING, TaskState.FAILED, TaskState.COMPLETED)


def test_a_proof_in_a_query_is_refused_as_one_in_a_body() -> None:
    assert refusal(ProofInQuery, {"epoch": "x"}) == refusal(Proof, {"epoch": "x"})


def test_values_of_a_query_are_read() -> None:
    query = validate(AgentFilter, {"limit": "0000000000000000007", "state": "suspect", "cursor": "", "label": ["a=b", "c"]})
    assert (query.limit, query.state, query.cursor, query.label) == (7, Health.SUSPECT, None, ("a=b", "c"))
    feed = validate(FeedQuery, {"after": "", "last_event_id": "5"})
    assert (feed.after, feed.last_event_id) == (None, 5)


def test_every_member_that_can_be_refused_has_a_reason() -> None:
    """Text in a query cannot be wrong, and `reason` of a drain may be anything."""
    kinds = [kind for kind in vars(requests).values() if isinstance(kind, type) and issubclass(kind, Body | Query | Proof)]
    without = {(kind.__name__, name) for kind in kinds for name, member in members_of(kind).items() if member.reason is None}
    texts = {
        "AgentFilter": ("role", "skill", "tag", "capability", "label", "q", "cursor"),
        "TaskFilter": ("role", "context_id", "cursor"),
        "TaskListQuery": ("role", "context_id", "cursor"),
        "TaskFeedQuery": ("role",),
        "Conditions": ("range", "if_range", "etag"),
        "ArtifactQuery": ("range", "if_range", "etag"),
        "UsageFilter": ("role", "holder", "cursor"),
        "EraseQuery": ("context_id", "holder"),
        "DeadLetterQuery": ("cursor",),
        "HealthQuery": ("verbose",),
        "CardQuery": ("etag", "since", "version"),
        "DocumentQuery": ("etag", "since"),
        "DrainRequest": ("reason",),
    }
    assert without == {(kind, name) for kind, names in texts.items() for name in names}
