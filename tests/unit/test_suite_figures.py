"""What counts as an access to private names, as a sleep and as a virtual sleep in tests."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.helpers.processes import ROOT

script = runpy.run_path(str(ROOT / "scripts" / "suite_figures.py"), run_name="suite_figures")
figures_of, files_by_folder, report = script["figures_of"], script["files_by_folder"], script["report"]


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("hub._relays", (1, 0, 0)),
        ("hub.relays._open._first", (2, 0, 0)),
        ("self.hub._relays", (1, 0, 0)),
        ("self._relays; cls._relays; super()._relays", (0, 0, 0)),
        ("hub.__class__; row._replace(a=1)", (0, 0, 0)),
        ("from hub.app import _every, run", (0, 1, 0)),
        ("monkeypatch.setattr('hub.app._every', 1)", (0, 0, 1)),
        ("monkeypatch.setattr(hub, '_every', 1)", (0, 0, 1)),
        ("mock.patch.object(hub, '_every')", (0, 0, 1)),
        ("monkeypatch.setattr(hub, 'every', '_value')", (0, 0, 0)),
    ],
)
def test_a_reach_is_a_private_name_of_another_object(source: str, kinds: tuple[int, int, int]) -> None:
    found = figures_of(source)
    assert (len(found.attributes), len(found.imports), len(found.patches)) == kinds


@pytest.mark.parametrize(
    ("source", "counts"),
    [
        ("asyncio.sleep(0); time.sleep(0.0)", (0, 0, 0)),
        ("asyncio.sleep(0.05); time.sleep(1); time.sleep(2.5)", (1, 2, 0)),
        ("from time import sleep as nap\nnap(0.5)", (1, 0, 0)),
        ("_LATE = 0.2\nasyncio.sleep(_LATE)", (1, 0, 0)),
        ("asyncio.sleep(until - now)", (0, 0, 1)),
        ("clock.sleep(3)", (0, 0, 0)),
    ],
)
def test_sleeps_are_counted_by_their_length(source: str, counts: tuple[int, int, int]) -> None:
    found = figures_of(source)
    assert (found.short, found.long, found.computed) == counts


@pytest.mark.parametrize(
    ("source", "flow", "counts"),
    [
        ("asyncio.sleep(0.1)", True, (0, 1)),
        ("asyncio.sleep(0.1)", False, (1, 0)),
        ("pytestmark = pytest.mark.real_time\nasyncio.sleep(0.1)", True, (1, 0)),
        ("pytestmark = pytest.mark.virtual_time\nasyncio.sleep(0.1)", False, (0, 1)),
        ("pytestmark = [pytest.mark.soak, pytest.mark.virtual_time]\nasyncio.sleep(0.1)", False, (0, 1)),
        ("time.sleep(0.1)", True, (1, 0)),
    ],
)
def test_sleeps_on_virtual_time_are_counted_apart(source: str, flow: bool, counts: tuple[int, int]) -> None:
    found = figures_of(source, flow=flow)
    assert (len(found.sleeps), len(found.virtual)) == counts


def test_a_report_names_files_and_folders(tmp_path: Path) -> None:
    for name, text in {"tests/a.py": "x._y\nx._z\n", "tests/b.py": "x._y\n", "hub/core/c.py": "", "hub/d.py": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert files_by_folder(tmp_path) == {"hub": 1, "hub/core": 1}
    assert report(tmp_path) == [
        "private reaches of tests: 3 (3 attributes, 0 imports, 0 patched by name)",
        "    2  tests/a.py",
        "    1  tests/b.py",
        "",
        "sleeps in tests: 0 (0 below a second, 0 of a second or more, 0 computed)",
        "virtual, cost nothing: 0",
        "",
        "files: 2 in 2 folders",
        "    1  hub",
        "    1  hub/core",
    ]
