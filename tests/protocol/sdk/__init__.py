"""The official Python SDKs, asked what they make of a document."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from rolecall.model.a2a import EventKind
from tests.helpers.tools import sdk_python

TYPES = {
    EventKind.MESSAGE: "Message",
    EventKind.TASK: "Task",
    EventKind.STATUS: "TaskStatusUpdateEvent",
    EventKind.ARTIFACT: "TaskArtifactUpdateEvent",
}


def understood(version: str, documents: list[tuple[str, Any]]) -> list[Any]:
    """What the SDK ("0.3" or "1.x") has of these documents, each with the name of its type. It fails where it refuses one."""
    script = Path(__file__).parent / f"stock_{version.replace('.', '')}.py"
    ran = subprocess.run(
        [sdk_python(version), script], input=json.dumps(documents), capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return [json.loads(line) for line in ran.stdout.splitlines()]
