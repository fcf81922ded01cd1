"""When a program starts again, and what people read of it."""

from __future__ import annotations

import pytest

from rolecall.cli.console.restart_policy import (
    AT_ONCE,
    LONG_RUN,
    LONGEST_PAUSE,
    MOST_FAILURES,
    Again,
    End,
    Left,
    Restart,
    RestartPolicy,
    ordinal,
)

ALWAYS, ON_FAILURE, NEVER = Restart.ALWAYS, Restart.ON_FAILURE, Restart.NEVER


def policy(restart: Restart = ALWAYS) -> RestartPolicy:
    return RestartPolicy(restart, {3: "another process has its name"})


def again(policy: RestartPolicy, end: End) -> Again:
    decision = policy.after(end)
    assert isinstance(decision, Again)
    return decision


def left(policy: RestartPolicy, end: End) -> Left:
    decision = policy.after(end)
    assert isinstance(decision, Left)
    return decision


def test_pauses_double_up_to_the_longest_and_each_is_told() -> None:
    chosen = policy()
    decisions = [again(chosen, End(1, AT_ONCE)) for _ in range(9)]
    assert [decision.pause for decision in decisions] == [0.5, 1, 2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    assert decisions[2].text == "ended with code 1; starts again in 2 s (3rd time)"


def test_a_program_that_is_killed_is_named_with_the_signal() -> None:
    assert again(policy(), End(-9, 100)).text == "was ended by SIGKILL; starts again in 0.5 s (1st time)"
    assert again(policy(), End(-63, 100)).text.startswith("was ended by signal 63")


def test_five_failures_at_once_in_a_row_leave_it_stopped() -> None:
    chosen = policy()
    for _ in range(MOST_FAILURES - 1):
        again(chosen, End(1, AT_ONCE - 0.1))
    assert left(chosen, End(1, 0.2)) == Left(
        failed=True, text="ended with code 1, at once, for the 5th time in a row; it is left stopped"
    )


def test_an_end_that_does_not_come_at_once_breaks_the_row_but_not_the_growing_pause() -> None:
    chosen = policy()
    for _ in range(MOST_FAILURES - 1):
        again(chosen, End(1, 0))
    assert again(chosen, End(1, AT_ONCE)).pause == 8
    assert again(chosen, End(1, 0)).pause == 16


def test_after_a_long_run_the_pause_is_short_again() -> None:
    chosen = policy()
    for _ in range(3):
        again(chosen, End(1, 0))
    assert again(chosen, End(1, LONG_RUN)).pause == 0.5


@pytest.mark.parametrize(
    ("restart", "code", "starts_again", "failed"),
    [
        (ALWAYS, 0, True, None),
        (ALWAYS, 1, True, None),
        (ON_FAILURE, 0, False, False),
        (ON_FAILURE, 1, True, None),
        (ON_FAILURE, -15, True, None),
        (NEVER, 0, False, False),
        (NEVER, 1, False, True),
        (ALWAYS, 3, False, True),
        (ALWAYS, None, False, True),
    ],
)
def test_what_the_file_says_decides(restart: Restart, code: int | None, starts_again: bool, failed: bool | None) -> None:
    decision = policy(restart).after(End(code, 100, "no such file"))
    assert isinstance(decision, Again) == starts_again
    if isinstance(decision, Left):
        assert decision.failed == failed


def test_an_end_that_another_start_would_repeat_says_why() -> None:
    assert left(policy(), End(3, 100)).text == "ended with code 3: another process has its name; it is left stopped"
    assert left(policy(), End(None, 0, "no such file")).text == "cannot be started: no such file; it is left stopped"


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (21, "21st"), (112, "112th")],
)
def test_ordinals(number: int, text: str) -> None:
    assert ordinal(number) == text
