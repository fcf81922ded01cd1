"""What is known against the packages of requirements.lock. Says so if nobody could be asked: silence is no good news."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

LOCK = Path(__file__).parents[1] / "requirements.lock"


class Verdict(NamedTuple):
    code: int
    text: str


def main() -> None:
    words = [str(Path(sys.executable).with_name("pip-audit")), "--disable-pip", "--require-hashes", "--format", "json"]
    asked = subprocess.run([*words, "-r", str(LOCK)], capture_output=True, text=True, check=False)
    found = verdict(asked.stdout, asked.stderr)
    sys.stdout.write(f"{found.text}\n")
    sys.exit(found.code)


def verdict(said: str, complaint: str) -> Verdict:
    """1: something is known. 2: not all packages could be asked for."""
    try:
        packages: list[dict[str, Any]] = json.loads(said)["dependencies"]
    except (ValueError, KeyError):
        last = complaint.strip().rpartition("\n")[2][:300]
        return Verdict(2, f"Nothing is audited: no source of advisories can be reached from this machine. {last}")
    known = [f"{one['name']} {one['version']}: {flaw['id']}" for one in packages for flaw in one.get("vulns", ())]
    skipped = sorted(one["name"] for one in packages if "skip_reason" in one)
    if known:
        return Verdict(1, "Known weaknesses:\n" + "\n".join(known))
    if skipped:
        few = ", ".join(skipped[:5]) + (", …" if len(skipped) > 5 else "")
        text = (
            f"{len(skipped)} of {len(packages)} packages are not audited: the source of advisories does not know them ({few})."
        )
        return Verdict(2, f"{text} Ask again where pypi.org can be reached.")
    return Verdict(0, f"Nothing is known against the {len(packages)} packages.")


if __name__ == "__main__":
    main()
