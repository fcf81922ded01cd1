"""Prefixes, and a terminal that takes nothing or has gone."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from rolecall.cli.console.console import Console, Printer, on_stdout


def shown(*steps: Callable[[Console], None], colour: bool = False) -> str:
    written: list[str] = []
    printer = Printer(written.append)
    console = Console(printer, own="up", colour=colour)
    for step in steps:
        step(console)
    assert printer.close(5)
    return "".join(written)


def test_prefixes_are_aligned() -> None:
    text = shown(
        lambda console: console.expect(["hub", "shouter:1", "shouter:2"]),
        lambda console: console.line("hub", "serves"),
        lambda console: console.line("shouter:2", "enrolled"),
        lambda console: console.report("stopping"),
        lambda console: console.line("hub", ""),
    )
    assert text == "hub       | serves\nshouter:2 | enrolled\nup        | stopping\nhub       |\n"


def test_instances_share_a_colour_that_others_do_not_have() -> None:
    text = shown(
        lambda console: console.expect(["hub", "shouter:1", "shouter:2", "planner"]),
        *(lambda console, name=name: console.line(name, "x") for name in ("hub", "shouter:1", "shouter:2", "planner")),  # type: ignore[misc]
        colour=True,
    )
    codes = [line.split("m")[0] for line in text.splitlines()]
    assert codes[1] == codes[2]
    assert len(set(codes)) == 3
    assert all("|\x1b[0m x" in line for line in text.splitlines())


async def test_what_is_shown_beside_the_programs_has_its_colour_and_controls_nothing() -> None:
    written: list[str] = []
    for colour in (True, False):
        printer = Printer(written.append)
        console = Console(printer, own="up", colour=colour)
        await console.news("logs", "echo\x1b[2J ✓", "green")
        await console.news("logs", "echo", None)
        assert printer.close(5)
    assert [text.partition("|")[2] for text in written] == [
        "\x1b[0m \x1b[32mecho[2J ✓\x1b[0m\n",
        "\x1b[0m echo\n",
        " echo[2J ✓\n",
        " echo\n",
    ]


def test_more_programs_than_colours_have_colours_again() -> None:
    names = [f"agent{number}" for number in range(40)]
    text = shown(
        lambda console: console.expect(names),
        *(lambda console, name=name: console.line(name, "x") for name in names),
        colour=True,  # type: ignore[misc]
    )
    assert text.count("\x1b[0m") == 40


def test_without_a_terminal_there_is_no_colour_and_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    console, printer = on_stdout("up")
    console.line("hub", "\x1b[31mred\x1b[2J")
    console.write(["  rolecall send echo hi"])
    assert printer.close(5)
    assert capsys.readouterr().out == "hub | red\n  rolecall send echo hi\n"


def test_a_reader_that_goes_is_noticed_once_and_the_programs_are_not_held_up() -> None:
    calls: list[bool] = []

    def write(text: str) -> None:
        raise BrokenPipeError

    printer = Printer(write)
    printer.when_broken(lambda: calls.append(True))
    for _ in range(5000):
        printer.put("line\n")
    assert printer.close(5)
    assert calls == [True]


def test_a_terminal_that_takes_nothing_holds_up_programs_and_not_the_command() -> None:
    takes = threading.Event()
    written: list[str] = []

    def write(text: str) -> None:
        takes.wait()
        written.append(text)

    printer = Printer(write)
    console = Console(printer, own="up", colour=False)
    program = threading.Thread(target=lambda: [console.line("hub", str(number)) for number in range(3000)], daemon=True)
    program.start()
    program.join(0.3)
    assert program.is_alive()
    console.report("this returns at once")
    assert not printer.close(0.1)
    takes.set()
    program.join(5)
    assert printer.close(5)
    assert [text for text in written if "hub" in text] == [f"hub | {number}\n" for number in range(3000)]
