"""Report known vulnerabilities of the packages in requirements.lock, and packages that could not be checked."""

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
    command = [str(Path(sys.executable).with_name("pip-audit")), "--disable-pip", "--require-hashes", "--format", "json"]
    audit = subprocess.run([*command, "-r", str(LOCK)], capture_output=True, text=True, check=False)
    found = verdict(audit.stdout, audit.stderr)
    sys.stdout.write(f"{found.text}\n")
    sys.exit(found.code)


def verdict(output: str, errors: str) -> Verdict:
    """Code 1: there are known vulnerabilities. 2: not all packages could be checked."""
    try:
        packages: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, KeyError):
        last = errors.strip().rpartition("\n")[2][:300]
        return Verdict(2, f"Nothing is audited: no source of advisories can be reached from this machine. {last}")
    known = [
        f"{package['name']} {package['version']}: {flaw['id']}" for package in packages for flaw in package.get("vulns", ())
    ]
    skipped = sorted(package["name"] for package in packages if "skip_reason" in package)
    if known:
        return Verdict(1, "Known vulnerabilities:\n" + "\n".join(known))
    if skipped:
        few = ", ".join(skipped[:5]) + (", …" if len(skipped) > 5 else "")
        text = (
            f"{len(skipped)} of {len(packages)} packages are not audited: the source of advisories does not know them ({few})."
        )
        return Verdict(2, f"{text} Repeat it where pypi.org can be reached.")
    return Verdict(0, f"The {len(packages)} packages have no known vulnerabilities.")


if __name__ == "__main__":
    main()
