"""Which statement is tested where, and what of it is refused. `python -m tests.seeds.statements` writes the last tables of
docs/reference/conformance.md; a test fails when they drift.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "conformance.md"
BEGIN, END = (
    "<!-- Written by tests/seeds/statements.py. Change the tests, then run it. -->\n",
    "<!-- End of what is written. -->\n",
)

SYSTEMS = {
    1: ("a coding agent's 0.3 server", 38),
    2: ("a fleet's endpoints", 35),
    3: ("the JSON-RPC transport", 17),
    4: ("a server under the oldest names", 33),
    5: ("a server with a registry", 28),
}

SDK = "tests/unit/worker_sdk"
_COMMANDS = f"{SDK}/test_command_line_agents.py"

ELSEWHERE: dict[str, tuple[str, ...]] = {
    "1.07": (f"{SDK}/test_process.py::test_the_environment_is_read_with_both_families_of_names",),
    "1.23": (f"{_COMMANDS}::test_canceling_asks_it_to_end_and_then_makes_it",),
    "1.25": (f"{_COMMANDS}::test_its_start_is_work_and_what_it_says_of_itself_a_result",),
    "1.26": (f"{_COMMANDS}::test_its_thoughts_are_chunks_of_one_text_and_an_empty_one_is_none",),
    "1.27": (f"{_COMMANDS}::test_its_tools_are_told_as_progress_and_their_results_in_brief",),
    "1.28": (f"{_COMMANDS}::test_its_end_is_the_tasks_with_a_result_or_a_reason",),
    "1.29": (
        f"{_COMMANDS}::test_its_question_pauses_the_task_and_the_answer_reaches_its_input",
        f"{SDK}/test_serve.py::test_a_question_ends_the_stream_and_the_answer_goes_on_with_the_numbers",
    ),
    "1.31": (f"{_COMMANDS}::test_its_failure_and_its_silence_fail_the_task",),
    "3.14": (f"{SDK}/test_client.py::test_a_call_gives_up_after_its_timeout",),
    "5.16": (
        "tests/contract/test_registry.py::test_lease_ends_exactly_at_its_ttl_without_a_sweep",
        "tests/contract/test_registry.py::test_zero_ttl_never_expires",
    ),
    "5.18": ("tests/contract/test_registry.py::test_wall_clock_step_expires_nobody",),
}
"""Tests outside this folder: of the SDK, and with clocks that can be moved."""

REFUSED: dict[str, str] = {
    "1.07": "The default port 41242: a worker takes `PORT`, or a free one.",
    "1.24": "The no-op, also as a setting: -32002 tells the caller what he did not achieve. `GetTask` has the task.",
    "1.26": "The name `assistant-response`: chunks of the SDK are one artifact without a name.",
    "2.15": "The no-op, as in 1.24, and the task inside the error: error data are details of the error.",
    "2.28": "Giving up after three attempts: a receiver may be away for a night, so it is tried for a day.",
    "2.29": "Holding back events that come within 1.5 s of each other: every event is pushed, in order.",
    "2.32": "Failing at start-up whatever was at work: it goes on where its worker can be asked.",
    "4.12": "Transitions in the metadata of 0.3 and 1.0 tasks: `Last-Event-ID: 0` replays all of them as they were.",
    "4.14": "A failed task as the answer of a stream: there the refusal is an error event, as in every dialect.",
    "4.18": "-32003 for a full hub: that code means that there are no push notifications.",
    "4.21": "The filter `events`: it is taken and not heeded. Each notice says of which type it is.",
    "4.24": "Removing a webhook after three failures: its event becomes a dead letter, the webhook stays.",
    "4.26": "An `agent-card.json` to load: the card is made of what is there, so it cannot claim more.",
    "5.09": "-32007 to -32009 for absent agents and for authentication: the specification gave them other meanings since.",
    "5.16": "The last moment: a lease of 120 s has ended after exactly 120 s, when its `expires_in` is 0.",
    "5.19": "`success: false` with HTTP 200: it is 404 with `registered: false`, which no client can take for success.",
    "5.21": "`--no-agent-registration`: a worker without a lease gets no calls. `A2A_WORKER_NAME`: it is `ROLECALL_INSTANCE`.",
    "5.24": "Insisting on a description: it may be left out.",
    "5.25": "Queues by role: a caller who wants to wait says for how long (`metadata.waitSeconds`), and hears if nobody came.",
    "5.26": "`success`, `status`, `conversation_id` and `routing` in a reply: it has `state`, `context_id` and `task_id`, and "
    "`task_decision()` tells the routing.",
}
"""What of a statement is not done, and why."""


def statements() -> Iterator[str]:
    for system, (_, count) in SYSTEMS.items():
        yield from (f"{system}.{number:02d}" for number in range(1, count + 1))


@cache
def tests() -> dict[str, list[str]]:
    """For each statement the tests of this folder that are named after it, as `path::name`."""
    found: dict[str, list[str]] = {}
    for path in sorted(Path(__file__).parent.glob("test_seed_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                named = re.fullmatch(r"test_s(\d)_(\d\d)_\w+", node.name)
                if named:
                    found.setdefault(f"{named[1]}.{named[2]}", []).append(f"tests/seeds/{path.name}::{node.name}")
    return found


def tables() -> str:
    """What stands between the two marks of the page."""
    lines = ["", "## What is refused", "", "| statement | what, and why |", "|---|---|"]
    lines += [f"| {name} | {why} |" for name, why in REFUSED.items()]
    own = tests()
    for system, (title, _) in SYSTEMS.items():
        lines += ["", f"## Statements {system}: {title}", "", "| statement | tests |", "|---|---|"]
        for name in statements():
            if name.startswith(f"{system}."):
                rows = [*own.get(name, ()), *ELSEWHERE.get(name, ())]
                lines.append(f"| {name} | {'<br>'.join(map(_sentence, rows))} |")
    return "\n".join([*lines, "", ""])


def _sentence(test: str) -> str:
    path, _, name = test.partition("::")
    words = re.sub(r"^test_(s\d_\d\d_)?", "", name).replace("_", " ")
    return f"[{words}](../../{path})"


def page() -> str:
    """The page as it ought to be."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return head + BEGIN + tables() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
