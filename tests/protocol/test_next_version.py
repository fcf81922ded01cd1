"""The next version of the protocol: a copy of 1.0 with another number, registered by one line, passes its golden files."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from rolecall.model.command import TaskQuery
from rolecall.protocol import v1_0
from rolecall.protocol.cards import write_card
from rolecall.protocol.dialects import DIALECTS, read_method, read_version
from tests.flow.conftest import CALLER, open_system
from tests.protocol.golden_contents import CONTENTS, PROFILE
from tests.protocol.golden_files import exactly, golden, transcript
from tests.protocol.requests_to_workers import INTERFACES, made
from tests.protocol.transcripts import CONVERSATIONS, OTHER_VERSION, Conversation, HttpRequest, run_conversation
from tests.unit.protocol.contents import kind_of

NEXT = "1.1"
HEADER = ("a2a-version", NEXT)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The copy's `dialect.py`."""
    folder = tmp_path_factory.mktemp("next")
    shutil.copytree(Path(v1_0.__file__).parent, folder / "v1_1", ignore=shutil.ignore_patterns("__pycache__"))
    for file in (folder / "v1_1").glob("*.py"):
        text = file.read_text(encoding="utf-8").replace("rolecall.protocol.v1_0", "v1_1")
        file.write_text(text.replace('VERSION = "1.0"', f'VERSION = "{NEXT}"'), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield importlib.import_module("v1_1.dialect")


@pytest.fixture(autouse=True)
def registered(package: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(DIALECTS, NEXT, package.DIALECT)
    read_method.cache_clear()
    yield
    read_method.cache_clear()


def asked_in_next(ask: Callable[[str, str], HttpRequest]) -> Callable[[str, str], HttpRequest]:
    def asked(step: str, task: str) -> HttpRequest:
        request = ask(step, task)
        return request._replace(headers=(HEADER, *(header for header in request.headers if header[0] != HEADER[0])))

    return asked


def as_in_1_0(text: str, *, named: bool) -> str:
    """`named`: the golden file names its version."""
    line = f"{HEADER[0]}: {NEXT}\n"
    return text.replace(line, line.replace(NEXT, "1.0") if named else "").replace("A2A-Version: 1.1", "A2A-Version: 1.0")


def test_it_is_another_version_than_1_0() -> None:
    assert list(DIALECTS) == ["0.1", "0.3", "1.0", NEXT]
    assert (read_version("1.0"), read_version("1.1"), read_version("1.1.3")) == ("1.0", NEXT, NEXT)
    assert DIALECTS[NEXT].version == NEXT


@pytest.mark.parametrize("name", CONTENTS)
def test_content_equals_its_golden_file(name: str) -> None:
    content, shape = CONTENTS[name], DIALECTS[NEXT].shape
    assert exactly(shape.write(content)) == exactly(golden(f"1.0/{name}"))
    assert shape.read(kind_of(content), golden(f"1.0/{name}")) == content


def test_a_card_equals_its_golden_file() -> None:
    numbered = tuple(one._replace(dialect=NEXT) if one.dialect == "1.0" else one for one in PROFILE.interfaces)
    card = write_card(replace(PROFILE, interfaces=numbered), NEXT)
    for interface in card["supportedInterfaces"]:
        assert interface["protocolVersion"] == NEXT
        interface["protocolVersion"] = "1.0"
    assert exactly(card) == exactly(golden("cards/full-1.0"))


@pytest.mark.parametrize("name", ["jsonrpc-1.0", "jsonrpc-1.0-of-a-0.3-worker", "rest-1.0"])
async def test_a_conversation_equals_its_transcript(name: str) -> None:
    known = CONVERSATIONS[name]
    log_dialect = NEXT if known.log_dialect == "1.0" else known.log_dialect
    steps = tuple(step for step in known.steps if step != OTHER_VERSION)
    conversation = Conversation(NEXT, log_dialect, steps, asked_in_next(known.ask))
    async with open_system() as system:
        sections = await run_conversation(conversation, system)
        rows = (await system.engine.tasks.page(CALLER, TaskQuery())).rows
    assert {(row.dialect, row.log_dialect) for row in rows} <= {(NEXT, log_dialect)}
    expected = transcript(f"exchanges/{name}")
    for step, text in sections.items():
        assert as_in_1_0(text, named=name.startswith("rest")) == expected[step], step


async def test_a_caller_in_0_3_gets_what_it_gets_from_a_worker_in_1_0() -> None:
    known = CONVERSATIONS["jsonrpc-0.3-of-a-1.0-worker"]
    async with open_system() as system:
        sections = await run_conversation(known._replace(log_dialect=NEXT), system)
    assert sections == transcript("exchanges/jsonrpc-0.3-of-a-1.0-worker")


async def test_a_caller_that_names_no_version_is_still_answered_in_1_0() -> None:
    async with open_system() as system:
        sections = await run_conversation(CONVERSATIONS["jsonrpc-1.0"], system)
    expected = transcript("exchanges/jsonrpc-1.0")
    refusal, expected_refusal = sections.pop(OTHER_VERSION), expected.pop(OTHER_VERSION)
    assert sections == expected
    assert refusal == expected_refusal.replace("0.3 or 1.0", "0.3, 1.0 or 1.1")


@pytest.mark.parametrize("name", ["jsonrpc-1.0", "rest-1.0"])
async def test_requests_to_a_worker_equal_their_transcript(name: str) -> None:
    sections = await made(INTERFACES[name]._replace(dialect=NEXT))
    expected = transcript(f"workers/{name}")
    # Asked in 1.0, a message is translated for this worker.
    for step in [step for step in sections if not step.endswith("asked in 1.0")]:
        assert as_in_1_0(sections[step], named=True) == expected[step], step
