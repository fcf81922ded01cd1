"""The relay's table, walked completely: every phase, trigger and fact."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from hub.core.relay.transitions import OF_THE_CALL, TABLE, Choice, Effect, Fact, Phase, Step, Trigger, step
from tests.helpers.scripts import load_script

_OVER = (Phase.ENDED, Phase.WITHDRAWN)
_AT_WORK = (Phase.CALLING, Phase.STREAMING, Phase.REATTACHING, Phase.POLLING)
_LIVE = (*_AT_WORK, Phase.RESTING, Phase.CHECKING)
_OF_THE_STORE = {Effect.WRITE, Effect.WRITE_MISSING, Effect.SHOW, Effect.MOVE, Effect.GIVE_UP, Effect.LOSE, Effect.CANCEL}
_TOWARDS_THE_WORKER = {Effect.DELIVER, Effect.COME_BACK, Effect.POLL, Effect.POLL_LATER, Effect.MOVE, Effect.ATTACH}


def steps() -> Iterator[tuple[Phase, Trigger, Step]]:
    """What follows in every phase from every trigger, whatever the facts."""
    for phase in Phase:
        for trigger in Trigger:
            for holds in (True, False):
                yield phase, trigger, step(phase, trigger, lambda _, holds=holds: holds)


def after(phase: Phase, trigger: Trigger, *facts: Fact) -> tuple[Phase, tuple[Effect, ...]]:
    return tuple(step(phase, trigger, lambda fact: fact in facts))


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("relay_diagram")


def test_the_page_shows_the_table_as_it_is(script: ModuleType) -> None:
    text = script.PAGE.read_text(encoding="utf-8")
    assert text == script.page(text), "run scripts/relay_diagram.py"


def test_a_trigger_without_an_entry_changes_nothing() -> None:
    missing = [(phase, trigger) for phase in Phase for trigger in Trigger if trigger not in TABLE[phase]]
    assert missing
    for phase, trigger in missing:
        assert after(phase, trigger, *Fact) == (phase, ())


def test_nothing_leads_out_of_the_end() -> None:
    for phase, trigger, following in steps():
        if phase in _OVER:
            assert following.phase is phase, trigger


def test_after_a_decision_to_end_nothing_of_the_worker_is_written_and_nothing_is_asked_of_it() -> None:
    for phase, trigger, following in steps():
        if phase not in _LIVE:
            assert not {Effect.WRITE, Effect.WRITE_MISSING, *_TOWARDS_THE_WORKER} & set(following.effects), (phase, trigger)


def test_no_phase_at_work_loses_what_the_worker_sends() -> None:
    for phase in _LIVE:
        assert after(phase, Trigger.RECEIVED) == (phase, (Effect.WRITE,))
    assert after(Phase.ENDED, Trigger.RECEIVED) == (Phase.ENDED, (Effect.DROP,))


def test_every_way_into_an_end_finishes_the_relay() -> None:
    for phase, trigger, following in steps():
        if following.phase in _OVER and phase is not following.phase:
            assert {Effect.FINISH, Effect.REST} & set(following.effects), (phase, trigger)
        if following.phase is Phase.RESTING and phase in _AT_WORK:
            assert Effect.REST in following.effects, (phase, trigger)


def test_the_store_works_for_one_effect_at_a_time_and_it_is_the_last_one() -> None:
    for phase, trigger, following in steps():
        assert not _OF_THE_STORE & set(following.effects[:-1]), (phase, trigger)


def test_a_message_is_delivered_only_when_it_was_stored_or_another_worker_provably_did_nothing() -> None:
    delivering = {(phase, trigger) for phase, trigger, following in steps() if Effect.DELIVER in following.effects}
    assert delivering == {(Phase.CALLING, Trigger.ASSIGNED), (Phase.RESTING, Trigger.ANSWERED)}
    moving = {trigger for _, trigger, following in steps() if Effect.MOVE in following.effects}
    assert moving == {Trigger.UNREACHABLE, Trigger.DECLINED, Trigger.FULL}


def test_the_relay_comes_back_after_its_pause_or_when_a_resting_task_goes_on_unheard() -> None:
    coming = {(phase, trigger) for phase, trigger, following in steps() if Effect.COME_BACK in following.effects}
    assert coming == {(Phase.REATTACHING, Trigger.RETRY), (Phase.RESTING, Trigger.LOGGED)}
    assert after(Phase.RESTING, Trigger.LOGGED, Fact.STREAM_OPEN) == (Phase.STREAMING, ())


def test_a_worker_is_not_suspected_of_what_the_hub_lacks() -> None:
    for phase in _LIVE:
        for trigger in (Trigger.FULL, Trigger.NO_CONNECTION):
            assert Effect.SUSPECT not in step(phase, trigger, lambda _: True).effects, (phase, trigger)


def test_a_failed_write_is_never_followed_by_later_events_of_the_same_stream() -> None:
    for phase in _AT_WORK:
        following = step(phase, Trigger.STORE_UNAVAILABLE, lambda _: True)
        assert following.effects[0] is Effect.HANG_UP, phase
    assert {Trigger.RECEIVED, Trigger.CLOSED, Trigger.CUT} <= OF_THE_CALL


def test_another_writer_of_the_log_stops_the_relay_in_every_phase() -> None:
    for phase in (*_LIVE, Phase.ENDING):
        following = step(phase, Trigger.FENCE_LOST, lambda _: True)
        assert following == (Phase.WITHDRAWN, (Effect.HANG_UP, Effect.FAIL_START, Effect.FINISH)), phase


def test_a_task_at_work_is_given_up_and_a_resting_one_only_with_its_worker() -> None:
    for phase in _AT_WORK:
        for trigger in (Trigger.GIVE_UP, Trigger.LEASE_LOST):
            assert after(phase, trigger) == (Phase.ENDING, (Effect.HANG_UP, Effect.GIVE_UP)), phase
    assert after(Phase.RESTING, Trigger.GIVE_UP) == (Phase.RESTING, ())
    assert after(Phase.RESTING, Trigger.LEASE_LOST) == (Phase.ENDING, (Effect.HANG_UP, Effect.GIVE_UP))


def test_a_check_that_brings_nothing_leaves_a_paused_task_as_it_is() -> None:
    assert after(Phase.RESTING, Trigger.CHECK) == (Phase.CHECKING, (Effect.ATTACH,))
    assert after(Phase.RESTING, Trigger.CHECK, Fact.STREAM_OPEN) == (Phase.RESTING, ())
    for trigger in (Trigger.CLOSED, Trigger.CUT, Trigger.UNREACHABLE, Trigger.DECLINED, Trigger.FULL, Trigger.LET_GO):
        following, effects = after(Phase.CHECKING, trigger, *Fact)
        assert (following, effects[-1]) == (Phase.RESTING, Effect.FINISH), trigger
    assert {phase for phase, trigger, _ in steps() if trigger in TABLE[phase] and trigger is Trigger.CHECK} == {Phase.RESTING}


def test_a_verdict_is_tried_until_the_store_takes_it() -> None:
    assert after(Phase.ENDING, Trigger.STORE_UNAVAILABLE) == (Phase.ENDING, (Effect.FAIL_START, Effect.WRITE_LATER))
    assert after(Phase.ENDING, Trigger.RETRY) == (Phase.ENDING, (Effect.GIVE_UP,))
    assert after(Phase.ENDING, Trigger.ENDED)[0] is Phase.ENDED
    assert after(Phase.ENDING, Trigger.TAKEN_BACK)[0] is Phase.WITHDRAWN


def test_a_call_that_may_have_run_is_followed_and_never_moved() -> None:
    for phase in (Phase.CALLING, Phase.STREAMING):
        assert after(phase, Trigger.CUT, Fact.FOLLOWABLE, Fact.MOVABLE)[0] is Phase.REATTACHING
        assert after(phase, Trigger.CUT, Fact.MOVABLE)[0] is Phase.ENDING
        assert after(phase, Trigger.INVALID, Fact.FOLLOWABLE, Fact.MOVABLE)[0] is Phase.ENDING
        assert after(phase, Trigger.CLOSED, Fact.KNOWN)[0] is Phase.REATTACHING


def test_every_phase_can_reach_an_end() -> None:
    reachable = {phase: {following.phase for start, _, following in steps() if start is phase} for phase in Phase}
    ending = set(_OVER)
    while more := {phase for phase in Phase if phase not in ending and reachable[phase] & ending}:
        ending |= more
    assert ending == set(Phase)


def test_nothing_in_the_table_is_unused() -> None:
    entries = [entry for row in TABLE.values() for entry in row.values()]
    used = {effect for _, _, following in steps() for effect in following.effects}
    assert used == set(Effect)
    assert {entry.fact for entry in entries if isinstance(entry, Choice)} == set(Fact)
    assert {trigger for row in TABLE.values() for trigger in row} == set(Trigger) - {Trigger.LOOK, Trigger.NOT_STORED}
