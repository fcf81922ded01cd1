import json
import os
from collections.abc import Iterator
from typing import Any

import httpx

HUB, SEQUENCE = os.environ.get("ROLECALL_HUB", "http://127.0.0.1:8420"), "https://rolecall.dev/ext/sequence/v1"
HEADERS = {"A2A-Version": "1.0", "A2A-Extensions": SEQUENCE}
if token := os.environ.get("ROLECALL_TOKEN"):
    HEADERS["Authorization"] = f"Bearer {token}"
MESSAGE = {"messageId": os.urandom(8).hex(), "role": "ROLE_USER", "parts": [{"text": "9"}]}


def events(method: str, params: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events of a stream, with their numbers."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    with httpx.stream("POST", f"{HUB}/agents/counter/", json=body, headers=HEADERS) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                (event,) = json.loads(line[6:])["result"].values()
                yield event["metadata"][SEQUENCE]["sequence"], event


def show(event: dict[str, Any]) -> None:
    for part in event.get("artifact", {}).get("parts", ()):
        print(part.get("text", ""), end="", flush=True)


for last, event in events("SendStreamingMessage", {"message": MESSAGE}):
    task = event.get("id") or event["taskId"]
    show(event)
    if last == 5:
        break
print("(cut) ", end="")
for sequence, event in events("SubscribeToTask", {"id": task, "metadata": {SEQUENCE: {"after": last}}}):
    if sequence > last:  # the first one is the Task as it was then
        show(event)
print()
