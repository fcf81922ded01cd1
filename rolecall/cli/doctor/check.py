"""One check as one line, and what to do about it below."""

from __future__ import annotations

import sys
from typing import NamedTuple

import click

from rolecall.cli.output import paint, strip_control

OK, FAIL, SKIPPED = "ok", "fail", "skipped"
_MARKS = {OK: ("ok  ", "green"), FAIL: ("FAIL", "red"), SKIPPED: ("skip", "dim")}


class Check(NamedTuple):
    name: str
    state: str
    about: str
    fix: str = ""
    code: int = 1
    """The exit code, if this is the first failed check."""


def passed(name: str, about: str) -> Check:
    return Check(name, OK, about)


def failed(name: str, about: str, fix: str, code: int = 1) -> Check:
    return Check(name, FAIL, about, fix, code)


def skipped(name: str, why: str) -> Check:
    return Check(name, SKIPPED, why)


def print_check(check: Check) -> None:
    mark, colour = _MARKS[check.state]
    about = strip_control(f"{check.name}: {check.about}").replace("\n", " ")
    click.echo(f"{paint(mark, colour, sys.stdout)}  {about}")
    for line in check.fix.splitlines():
        click.echo(f"        {strip_control(line)}")
