"""When trying to reach a worker again is hopeless."""

from __future__ import annotations

import pytest

from hub.core.relay.retry_budget import RetryBudget
from rolecall.errors import (
    CredentialRefused,
    HubError,
    InvalidAnswer,
    StoreUnavailable,
    WorkerBroke,
    WorkerLost,
    WorkerRefused,
    WorkerSilent,
    WorkerUnreachable,
)

SILENCE = 60.0
CUT = WorkerBroke("echo:a", "cut")
REFUSED = WorkerUnreachable("echo:a", "http://w/", "connection refused")
INVALID = InvalidAnswer("echo:a", "no JSON")
PAUSE = 0.25


def a_budget() -> RetryBudget:
    return RetryBudget(SILENCE, 0.0)


@pytest.mark.parametrize("error", [CUT, REFUSED, INVALID])
def test_a_failure_within_the_allowed_silence_costs_a_pause(error: HubError) -> None:
    assert a_budget().failed(SILENCE, error, "echo:a") == PAUSE


@pytest.mark.parametrize("error", [CUT, REFUSED, INVALID])
def test_a_failure_after_too_long_a_silence_is_the_end(error: HubError) -> None:
    with pytest.raises(WorkerSilent, match=r"^echo:a gave no sign of life for 61 s\.$"):
        a_budget().failed(SILENCE + 1, error, "echo:a")


def test_a_sign_of_life_begins_the_silence_anew() -> None:
    budget = a_budget()
    budget.last_sign = 30.0
    assert budget.failed(90.0, CUT, "echo:a") == PAUSE
    with pytest.raises(WorkerSilent):
        budget.failed(91.0, CUT, "echo:a")


def test_a_failing_store_is_not_silence_of_the_worker() -> None:
    budget = a_budget()
    assert budget.failed(100.0, StoreUnavailable(), "echo:a") == PAUSE
    assert budget.alive_at == 100.0


def test_a_worker_that_does_not_let_the_hub_in_may_get_another_credential() -> None:
    budget, error = a_budget(), CredentialRefused("echo:a", 401, shown=True)
    assert [budget.failed(at, error, "echo:a") for at in (1.0, 1.2, 1.4, SILENCE)] == [PAUSE] * 4
    with pytest.raises(CredentialRefused):
        budget.failed(SILENCE + 1, error, "echo:a")


@pytest.mark.parametrize(("apart", "lost"), [(0.5, True), (1.0, True), (1.1, False)])
def test_two_refusals_within_a_second_mean_that_nothing_listens(apart: float, lost: bool) -> None:
    budget = a_budget()
    budget.failed(10.0, REFUSED, "echo:a")
    if lost:
        with pytest.raises(WorkerLost, match="refuses connections"):
            budget.failed(10.0 + apart, REFUSED, "echo:a")
    else:
        assert budget.failed(10.0 + apart, REFUSED, "echo:a") == PAUSE


def test_the_third_invalid_answer_is_raised() -> None:
    budget = a_budget()
    for _ in range(2):
        assert budget.failed(1.0, INVALID, "echo:a") == PAUSE
    with pytest.raises(InvalidAnswer):
        budget.failed(1.0, INVALID, "echo:a")


def test_a_stream_that_brought_events_is_asked_for_again_at_once() -> None:
    budget = a_budget()
    budget.opened(1.0, (1, "b.1"), delivers=False)
    assert budget.closed(1.1, (2, "b.2"), "echo:a", streams=True) == 0.0


def test_a_stream_that_ends_at_once_without_an_event_is_no_sign_of_life() -> None:
    budget = a_budget()
    budget.opened(1.0, (1, None), delivers=False)
    budget.last_sign = 1.1
    assert budget.closed(1.2, (1, None), "echo:a", streams=True) == PAUSE
    assert budget.alive_at == 0.0
    budget.opened(61.0, (1, None), delivers=False)
    with pytest.raises(WorkerSilent):
        budget.closed(61.1, (1, None), "echo:a", streams=True)


def test_a_stream_that_lasted_a_while_is_a_sign_of_life_without_an_event() -> None:
    budget = a_budget()
    budget.opened(1.0, (1, None), delivers=False)
    budget.last_sign = 2.0
    assert budget.closed(2.0, (1, None), "echo:a", streams=True) == PAUSE
    assert budget.alive_at == 2.0


@pytest.mark.parametrize(("streams", "until"), [(True, 10 * SILENCE), (False, float("inf"))])
def test_an_unchanged_task_is_a_sign_of_life_for_a_while_at_a_worker_that_could_stream(streams: bool, until: float) -> None:
    budget = a_budget()
    budget.unchanged(10 * SILENCE - 1, streams=streams)
    assert budget.alive_at == 10 * SILENCE - 1
    budget.unchanged(10 * SILENCE, streams=streams)
    assert (budget.alive_at == 10 * SILENCE) is (until > 10 * SILENCE)


def test_an_unchanged_task_is_no_sign_of_life_of_a_worker_that_has_ended_its_answer() -> None:
    budget = a_budget()
    budget.opened(1.0, (0, None), delivers=True)
    budget.closed(5.0, (1, None), "echo:a", streams=True)
    budget.unchanged(6.0, streams=True)
    assert budget.alive_at == 0.0


def test_an_answer_that_does_not_arrive_is_given_up_after_six_looks() -> None:
    budget = a_budget()
    for _ in range(5):
        budget.still_paused("echo:a")
    with pytest.raises(WorkerRefused, match="still waits for this answer"):
        budget.still_paused("echo:a")
