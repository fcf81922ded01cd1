"""Why a worker was chosen, in words."""

from __future__ import annotations

from rolecall.model.a2a import JsonObject

_OF_A_WORKER = {
    "instance": "the call names it",
    "owner": "it has the task",
    "context affinity": "it has the conversation",
    "trial": "calls to it have failed; this one shows whether it works again",
}
_BEFORE = {
    "skill": "the role offers the skill; ",
    "context": "the conversation is with the role; ",
    "default role": "it is the default role; ",
    "context holder gone": "the worker that had the conversation is gone; ",
    "context holder lacks the skill": "the worker that has the conversation does not offer the skill; ",
    "panic": "most of the role's workers are suspect, so all were looked at; ",
    "failover": "the first one could not be reached; ",
}


def in_words(decision: JsonObject) -> str:
    """A decision of the hub's router, as `GET /registry/tasks/{id}/decision` gives it."""
    rule, ready = str(decision["rule"]), int(decision["candidates"])
    if rule in _OF_A_WORKER:
        return _OF_A_WORKER[rule]
    among = "no other was ready" if ready < 2 else f"{ready} ready; this one was less busy than another"
    return f"{_BEFORE.get(rule, '')}{among}"
