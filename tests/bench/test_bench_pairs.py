"""How `scripts/bench --before` compares the rounds of two hubs, and how it gets the earlier one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.__main__ import main
from tests.bench.checkouts import CURRENT, NoCheckout, changed_libraries, earlier
from tests.bench.figures import Case, Sample
from tests.bench.machine import Cores
from tests.bench.pairs import Pair, in_order, table_of_pairs
from tests.bench.proxies import Proxy
from tests.bench.rig import Bench
from tests.bench.turns import in_turn


def test_the_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    # The machine becomes slower in each round. The medians alone would give 30/20, a ratio that no round had.
    pair = Pair.of("cpu", before=[10.0, 20.0, 40.0], now=[30.0, 22.0, 44.0])
    assert (pair.before.median_value, pair.now.median_value) == (20.0, 30.0)
    assert pair.ratio == pytest.approx(1.1)


def test_the_spread_is_that_of_the_hub_whose_rounds_differ_more() -> None:
    calm, spread_out = [100.0, 100.0, 102.0], [80.0, 100.0, 120.0]
    assert Pair.of("cpu", calm, spread_out).spread == pytest.approx(0.2)
    assert Pair.of("cpu", spread_out, calm).spread == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("now", "worse"),
    [
        ([90.0, 90.0, 90.0], False),
        ([105.0, 105.0, 105.0], False),
        ([106.0, 106.0, 106.0], True),
        ([106.0, 110.0, 114.0], True),
        ([100.0, 110.0, 120.0], False),
    ],
    ids=["better", "at the limit", "beyond it", "beyond it and the spread", "within the spread"],
)
def test_a_row_is_worse_when_its_ratio_is_beyond_the_limit_and_the_spread(now: list[float], worse: bool) -> None:
    assert Pair.of("cpu", [100.0, 100.0, 100.0], now).is_worse(1.05) is worse


def test_the_first_proxy_changes_from_round_to_round() -> None:
    assert [in_order(turn, ("before", "now")) for turn in (1, 2, 3)] == [
        ["before", "now"],
        ["now", "before"],
        ["before", "now"],
    ]


class BenchWithoutWorker(Bench):
    def plan(self, events: int, interval_us: int) -> None:
        """Nothing to plan: there is no worker."""


def test_cases_alternate_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def measured(bench: Bench, proxy: Proxy, case: Case) -> tuple[Sample, list[str]]:
        asked.append(proxy.name)
        return Sample(1, 1, 1, 1), []

    monkeypatch.setattr("tests.bench.turns.measure", measured)
    proxies, cases = [Proxy("before", 0, 0), Proxy("now", 0, 0)], [Case("plain", "send", 1, 1)]
    bench = BenchWithoutWorker(Path(), Cores(0, 0), {})
    in_turn(bench, proxies, cases, 2, swap_order=True)
    assert asked == ["before", "now", "now", "before"]
    in_turn(bench, proxies, cases, 2)
    assert asked[4:] == ["before", "now", "before", "now"]


def test_a_table_has_a_line_for_each_pair() -> None:
    pair = Pair.of("Plain calls: CPU", [100.0, 100.0, 104.0], [110.0, 112.0, 110.0])
    assert table_of_pairs([pair]) == [
        ["row", "before", "now", "ratio", "spread", "floor", "now/floor"],
        ["Plain calls: CPU", "100", "110", "1.10×", "±2%", "–", "–"],
    ]


def test_the_ratio_to_the_floor_is_that_of_each_round_as_well() -> None:
    pair = Pair.of("paced", [100.0, 100.0, 104.0], [60.0, 44.0, 90.0], floor=[20.0, 22.0, 60.0])
    assert table_of_pairs([pair])[1] == ["paced", "100", "60.0", "0.60×", "±38%", "22.0", "2.00×"]


def test_one_round_has_no_spread() -> None:
    assert table_of_pairs([Pair.of("cpu", [100.0], [110.0])])[1] == ["cpu", "100", "110", "1.10×", "–", "–", "–"]


def test_only_libraries_that_both_have_can_differ() -> None:
    before = {"quart": "0.22.0", "msgspec": "0.19.0", "gone": "1", "rolecall": "0.1.0"}
    now = {"quart": "0.22.0", "msgspec": "0.20.0", "new": "1", "rolecall": "0.2.0"}
    assert changed_libraries(before, now) == ["msgspec 0.19.0 → 0.20.0"]


def test_a_point_names_this_checkout() -> None:
    assert earlier(".") is CURRENT


def test_an_unknown_revision_leaves_nothing_behind(tmp_path: Path, repository: Path) -> None:
    with pytest.raises(NoCheckout, match="no revision nowhere"):
        earlier("nowhere", root=repository, folder=tmp_path / "before")
    assert not (tmp_path / "before").exists()


def test_a_revision_is_checked_out_once_and_the_checkout_of_the_user_is_left_alone(
    tmp_path: Path, repository: Path, git: Callable[..., str]
) -> None:
    prepare_calls: list[Path] = []
    first, folder = git("rev-parse", "HEAD~1"), tmp_path / "before"
    found = earlier("HEAD~1", root=repository, folder=folder, prepare=prepare_calls.append)
    assert found == earlier(first, root=repository, folder=folder, prepare=prepare_calls.append)
    assert found.tree == folder / first[:12] / "tree"
    assert (found.tree / "text").read_text() == "old"
    assert (repository / "text").read_text() == "new"
    assert git("status", "--porcelain") == ""
    assert prepare_calls == [folder / first[:12]]


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., str]:
    def run(*words: str) -> str:
        named = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
        argv = ["git", "-C", str(tmp_path / "repository"), *named, *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()

    return run


@pytest.fixture
def repository(tmp_path: Path, git: Callable[..., str]) -> Path:
    """Two commits of one file."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git("init", "--quiet")
    for text in ("old", "new"):
        (folder / "text").write_text(text)
        git("add", "text")
        git("commit", "--quiet", "-m", text)
    return folder


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--before", ".", "--rows", "plain,fast"], "--rows: no fast; there are plain, events"),
        (["--fail-above", "1.05"], "--fail-above needs --before"),
        (["--before", ".", "--fail-above", "1.05", "--rounds", "2"], "--fail-above needs --rounds 3 or more"),
    ],
)
def test_options_that_make_no_sense_are_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
