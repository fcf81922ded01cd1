"""Which build of the package this is: two builds may have the same version."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

_DIGITS = 12
_CODE = ("hub/", "rolecall/", "worker_sdk/")


@lru_cache(maxsize=1)
def build() -> str:
    """`git-` and the revision of the clone that this runs from, whatever was changed there since, or that pip installed it
    from; else `files-` and a digest of what was installed. Empty: it cannot be known.
    """
    root = Path(__file__).parents[1]
    if (root / "pyproject.toml").is_file():
        return _named("git", revision_of(root / ".git"))
    try:
        installed = Distribution.from_name("rolecall")
    except PackageNotFoundError:
        return ""
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    revision = str(origin.get("vcs_info", {}).get("commit_id", ""))
    return _named("git", revision) or _named("files", digest_of(installed.read_text("RECORD") or ""))


def revision_of(git: Path) -> str:
    """What is checked out. `git`: the folder of a clone, or the file that names it. Empty: there is none, or it is in a form
    that only git itself reads.
    """
    try:
        if git.is_file():
            git = git.parent / git.read_text("utf-8").removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text("utf-8").strip()
        if not head.startswith("ref:"):
            return head
        name = head.removeprefix("ref:").strip()
        shared = git / "commondir"
        common = git / shared.read_text("utf-8").strip() if shared.is_file() else git
        if (common / name).is_file():
            return (common / name).read_text("utf-8").strip()
        packed = (line.split() for line in (common / "packed-refs").read_text("utf-8").splitlines())
        return next((words[0] for words in packed if words[1:] == [name]), "")
    except OSError:
        return ""


def digest_of(record: str) -> str:
    """`record`: as pip writes it, a line with the digest of each file. Only the code is the same wherever it is installed."""
    code = sorted(line for line in record.splitlines() if line.startswith(_CODE) and "__pycache__" not in line)
    return hashlib.sha256("\n".join(code).encode()).hexdigest() if code else ""


def _named(kind: str, digits: str) -> str:
    return f"{kind}-{digits[:_DIGITS]}" if digits else ""
