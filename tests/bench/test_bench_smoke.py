"""The benchmark runs and its checks pass. Not part of `make test`: it needs tools and free cores."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.bench.proxies import ROOT, missing_tools


@pytest.mark.soak
@pytest.mark.skipif(bool(missing_tools()), reason="scripts/install-bench-tools has not been run")
def test_a_quick_benchmark_is_honest_and_names_all() -> None:
    done = subprocess.run([ROOT / "scripts" / "bench", "--quick"], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("nginx", "floor", "sdk-1.3", "sdk-0.3", "hub"):
        assert done.stdout.count(f"\n{name} ") == 2


@pytest.mark.soak
@pytest.mark.skipif(bool(missing_tools(())), reason="there is no C compiler")
def test_a_hub_is_measured_beside_itself() -> None:
    words = ("--before", ".", "--rows", "plain", "--rounds", "1", "--seconds", "0.2")
    argv = [sys.executable, "-m", "tests.bench", *words]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    head, cpu, p50 = done.stdout.splitlines()[-3:]
    assert head.split() == ["row", "before", "now", "ratio", "spread", "floor", "now/floor"]
    assert cpu.startswith("Plain calls, 32 connections: CPU µs/call ")
    assert p50.startswith("Plain calls, 32 connections: p50 ms ")
