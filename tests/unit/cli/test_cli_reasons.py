"""Why a worker was chosen, in words."""

from __future__ import annotations

import pytest

from rolecall.cli.tasks.reasons import in_words


@pytest.mark.parametrize(
    ("rule", "ready", "words"),
    [
        ("path", 1, "no other was ready"),
        ("metadata", 2, "2 ready; this one was less busy than another"),
        ("instance", 1, "the call names it"),
        ("owner", 1, "it has the task"),
        ("context affinity", 3, "it has the conversation"),
        ("trial", 1, "calls to it have failed; this one shows whether it works again"),
        ("skill", 4, "the role offers the skill; 4 ready; this one was less busy than another"),
        ("failover", 1, "the first one could not be reached; no other was ready"),
        ("a rule of a later hub", 2, "2 ready; this one was less busy than another"),
    ],
)
def test_a_decision_in_words(rule: str, ready: int, words: str) -> None:
    assert in_words({"rule": rule, "candidates": ready}) == words
