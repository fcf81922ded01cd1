"""The command that sends a worker what it takes, to paste into a shell."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence

from rolecall.cli.agents.schemas import NoExample, example_of, required_of
from rolecall.model.a2a import JsonObject
from rolecall.model.card import Skill
from rolecall.protocol.cards import skills

_LONGEST = 200


def example_call(role: str, card: JsonObject) -> str:
    """The words behind `rolecall send`."""
    found = skills(card)
    skill = _called_without_a_name(role, found) or (found[0] if found else None)
    words = [role]
    if skill is not None and len(found) > 1 and skill.id != role:
        words += ["--skill", quoted(skill.id)]
    if skill is None or skill.input_schema is None:
        return " ".join([*words, '"hello"'])
    return " ".join([*words, "--data", quoted(_data_for(skill.input_schema))])


def _called_without_a_name(role: str, found: Sequence[Skill]) -> Skill | None:
    """The skill that answers a call without one: the handler of all messages has the name of the role."""
    return next((skill for skill in found if skill.id == role), None)


def _data_for(schema: JsonObject) -> str:
    """Data that matches; where nobody can tell what does, or it is long, the names of its members."""
    try:
        text = json.dumps(example_of(schema), ensure_ascii=False)
    except NoExample:
        text = ""
    if 0 < len(text) <= _LONGEST:
        return text
    return f"{{{', '.join(f'{json.dumps(name, ensure_ascii=False)}: …' for name in required_of(schema))}}}"


def quoted(word: str) -> str:
    """For the shell that this platform has."""
    return subprocess.list2cmdline([word]) if sys.platform == "win32" else shlex.quote(word)
