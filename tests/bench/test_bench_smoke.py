"""The benchmark itself runs and finds itself honest. Not part of `make test`: it wants a machine to itself."""

from __future__ import annotations

import subprocess

import pytest

from tests.bench.proxies import ROOT, missing_tools


@pytest.mark.soak
@pytest.mark.skipif(bool(missing_tools()), reason="scripts/install-bench-tools has not been run")
def test_a_quick_benchmark_is_honest_and_names_all() -> None:
    done = subprocess.run([ROOT / "scripts" / "bench", "--quick"], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("nginx", "sdk-1.3", "sdk-0.3", "hub"):
        assert done.stdout.count(f"\n{name} ") == 2
