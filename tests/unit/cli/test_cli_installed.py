"""The command line where the hub's packages are not installed."""

from __future__ import annotations

import re
import sys
import tomllib

import pytest

from rolecall.cli import run
from rolecall.cli.installed import PACKAGES
from tests.helpers.processes import ROOT


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve"],
        ["serve", "--help"],
        ["serve", "--port", "9", "more"],
        ["dev"],
        ["config", "show", "--json"],
        ["config", "validate"],
        ["tokens", "new", "--name", "me"],
    ],
)
def test_without_the_hub_its_commands_report_in_one_line_what_to_install(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("quart", "prometheus_client"):
        monkeypatch.setitem(sys.modules, package, None)
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    needs = f"error: rolecall {arguments[0]} needs the hub: pip install 'rolecall[hub]'"
    assert (out, err) == ("", f"{needs} (missing: prometheus-client, quart) [NOT_INSTALLED]\n")


def test_without_the_hub_the_help_still_lists_its_commands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["--help"]) == 0
    everything = capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "quart", None)
    assert run(["--help"]) == 0
    assert capsys.readouterr().out == everything
    assert re.search(r"^  serve +Run the hub\.$", everything, re.MULTILINE)


def test_a_shell_can_complete_commands_without_the_hub(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "quart", None)
    monkeypatch.setenv("_ROLECALL_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_LINE", "rolecall se")
    monkeypatch.setenv("COMP_WORD", "se")
    assert run([]) == 0
    assert capsys.readouterr().out.split() == ["plain,serve", "plain,send"]


def test_the_packages_that_a_hub_needs_are_those_of_its_extra() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = {
        kind: {re.split(r"[^\w-]", one)[0].replace("-", "_") for one in listed if "sys_platform" not in one}
        for kind, listed in {"hub": document["optional-dependencies"]["hub"], "base": document["dependencies"]}.items()
    }
    assert set(PACKAGES) == names["hub"] - names["base"], "rolecall/cli/installed.py lists other packages than pyproject.toml"
