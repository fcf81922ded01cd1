"""Random content for the translation between dialects, and documents that only resemble content.

Messages and tasks are assembled from prepared pools, because ten thousand of them have to be cheap. Parts, which are the hard
case, are generated from scratch.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

from hypothesis import strategies as st

from rolecall.model.a2a import EventKind, JsonObject, TaskState
from rolecall.model.content import Artifact, ArtifactUpdate, Content, Message, Part, PartKind, Role, Status, StatusUpdate, Task

KINDS = {
    Message: EventKind.MESSAGE,
    Task: EventKind.TASK,
    StatusUpdate: EventKind.STATUS,
    ArtifactUpdate: EventKind.ARTIFACT,
}
# Names with a meaning in A2A or in the translation: inside metadata and data they have none.
LOADED = ("kind", "final", "role", "type", "value", "metadata", "filename", "mediaType", "rolecall", "data_part_compat", "text")
_WORDS = (
    "x",
    "user",
    "ROLE_AGENT",
    "text/plain",
    "ä€😀",
    "\0",
    "\u2028\ufeff",
    "e\u0301",
    "\U0010ffff",
    '"\\',
    "\r\n",
    " ",
    "rolecall",
)
_PLAIN_VALUES = (None, True, False, 0, 1, -1, 1.0, 0.1, 1e300, 2**60, "", *_WORDS)


def _json(random: Random, depth: int = 3) -> Any:
    shape = random.randrange(3) if depth else 0
    if shape == 0:
        return random.choice(_PLAIN_VALUES)
    if shape == 1:
        return [_json(random, depth - 1) for _ in range(random.randrange(3))]
    return _object(random, depth - 1)


def _object(random: Random, depth: int = 3) -> dict[str, Any]:
    names = random.choices((*LOADED, *_WORDS), k=random.randrange(4))
    return {name: _json(random, depth) for name in names}


def _wrapped_metadata(random: Random) -> dict[str, Any]:
    """Metadata from a sender that resembles what the translation writes: complete, broken, or nested."""
    kept: dict[str, Any] = {name: random.choice(_WORDS) for name in ("filename", "mediaType") if random.random() < 0.5}
    if random.random() < 0.5:
        kept["metadata"] = _wrapped_metadata(random) if random.random() < 0.5 else _object(random)
    wrapped = {"rolecall": kept if random.random() < 0.9 else _json(random)}
    mark = {"data_part_compat": random.choice((True, True, 1, "x"))} if random.random() < 0.5 else {}
    return {**(_object(random) if random.random() < 0.3 else {}), **mark, **(wrapped if random.random() < 0.9 else {})}


_random = Random(20)
_JSON = [_json(_random) for _ in range(400)]
_OBJECTS = [_object(_random) for _ in range(400)] + [{"value": value} for value in _JSON[:100]]
_METADATA = [None] * 200 + [_object(_random) for _ in range(200)] + [_wrapped_metadata(_random) for _ in range(400)]

# --- from the pools

_word = st.sampled_from(("", *_WORDS))
_optional = st.sampled_from((None, *_WORDS))
_some = st.sampled_from([(), (), ("",), _WORDS, ("a", "a")])
_metadata = st.sampled_from(_METADATA)
_raw = st.sampled_from([b64encode(bytes(range(length))).decode() for length in range(9)])


def _parts(text: Any, raw: Any, json: Any, objects: Any, optional: Any, metadata: Any) -> tuple[Any, Any]:
    """Parts that both 0.3 and 1.0 can express, and parts that only 1.0 can."""
    files = st.builds(Part, st.just(PartKind.RAW), raw, optional, optional, metadata) | st.builds(
        Part, st.just(PartKind.URL), text, optional, optional, metadata
    )
    nothing = st.none()
    plain = st.builds(Part, st.just(PartKind.TEXT), text, nothing, nothing, metadata) | st.builds(
        Part, st.just(PartKind.DATA), objects, nothing, nothing, metadata
    )
    modern = st.builds(Part, st.just(PartKind.TEXT), text, optional, optional, metadata) | st.builds(
        Part, st.just(PartKind.DATA), json, optional, optional, metadata
    )
    return files | plain, modern


_part = st.one_of(*_parts(_word, _raw, st.sampled_from(_JSON), st.sampled_from(_OBJECTS), _optional, _metadata))
_some_parts = st.lists(_part, max_size=3).map(tuple)
messages = st.builds(Message, _word, st.sampled_from(Role), _some_parts, _optional, _optional, _some, _some, _metadata)
_artifacts = st.builds(Artifact, _word, _some_parts, _optional, _optional, _some, _metadata)
_moments = st.sampled_from([None, "2025-10-28T10:00:00Z", "0001-01-01T00:00:00.5Z", "9999-12-31T23:59:59.123456789Z"])
_statuses = st.builds(Status, st.sampled_from(TaskState), st.none() | messages, _moments)
_status_updates = st.builds(StatusUpdate, _word, _word, _statuses, _metadata)
_artifact_updates = st.builds(ArtifactUpdate, _word, _word, _artifacts, st.booleans(), st.booleans(), _metadata)
_history_lists, _artifact_lists = (st.lists(items, max_size=2).map(tuple) for items in (messages, _artifacts))
_tasks = st.builds(Task, _word, _word, _statuses, _history_lists, _artifact_lists, _metadata)
contents = messages | _status_updates | _artifact_updates | _tasks

# --- generated from scratch

_keys = st.sampled_from(LOADED) | st.text(max_size=4)
_plain_values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
_values = st.recursive(
    _plain_values, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_keys, inner, max_size=2), max_leaves=4
)
_made_objects = st.dictionaries(_keys, _values, max_size=3)
_wrapped_values = st.recursive(
    st.fixed_dictionaries(
        {}, optional={"rolecall": _made_objects, "data_part_compat": st.sampled_from((True, 1)), "a": _plain_values}
    ),
    lambda inner: st.fixed_dictionaries(
        {"rolecall": st.fixed_dictionaries({}, optional={"metadata": inner, "filename": st.text(), "mediaType": st.text()})},
        optional={"data_part_compat": st.just(True)},
    ),
    max_leaves=3,
)
_made_metadata = st.none() | _made_objects | _wrapped_values
_made_data = _made_objects | st.fixed_dictionaries({"value": _values})
_made_names = st.none() | st.text(min_size=1, max_size=4)
_binary = st.binary(max_size=8).map(lambda content: b64encode(content).decode())
plain_parts, modern_parts = _parts(st.text(), _binary, _values | _made_data, _made_data, _made_names, _made_metadata)

# --- documents: members as the dialects name them, with any value

_MEMBERS = (
    *("id", "taskId", "task_id", "contextId", "sessionId", "messageId", "artifactId", "artifact_id", "name", "description"),
    *(
        "role",
        "kind",
        "type",
        "final",
        "state",
        "timestamp",
        "index",
        "append",
        "lastChunk",
        "filename",
        "mediaType",
        "mimeType",
    ),
    *("text", "raw", "url", "data", "bytes", "uri", "content", "metadata", "extensions", "referenceTaskIds"),
    *("status", "message", "artifact", "file", "parts", "history", "artifacts"),
)
_VALID: tuple[Any, ...] = (
    "user",
    "agent",
    "ROLE_USER",
    1,
    2,
    "text",
    "file",
    "data",
    "working",
    "TASK_STATE_WORKING",
    99,
    2**70,
    "AA==",
    {},
    [],
    ["x"],
)
_MOMENTS = ("2025-10-28T10:00:00+25:00", "9999-12-31T23:59:59-01:00", "2025-02-30T00:00:00Z", "0001-01-01T00:00:00+01:00")
_ANYTHING = (*_VALID, *_MOMENTS, *_JSON[:100], *_METADATA[::20])


def _document(random: Random, depth: int = 4) -> dict[str, Any]:
    document: dict[str, Any] = {name: random.choice(_ANYTHING) for name in random.sample(_MEMBERS, random.randrange(6))}
    if depth:
        for name in random.sample(("status", "message", "artifact", "file"), random.randrange(3)):
            document[name] = _document(random, depth - 1)
        for name in random.sample(("parts", "history", "artifacts"), random.randrange(3)):
            document[name] = [_document(random, depth - 1) for _ in range(random.randrange(3))]
    return document


def mutate(document: Any, random: Random) -> Any:
    """The same document with one change: a member or item removed, replaced or added."""
    if not isinstance(document, dict | list) or not document or random.random() < 0.15:
        return random.choice(_ANYTHING)
    positions = list(document) if isinstance(document, dict) else range(len(document))
    position = random.choice(positions)
    changed: Any = document.copy()
    if random.random() < 0.1:
        del changed[position]
    elif isinstance(changed, dict) and random.random() < 0.2:
        changed[random.choice(_MEMBERS)] = random.choice(_ANYTHING)
    else:
        changed[position] = mutate(document[position], random)
    return changed


_numbers = st.integers(0, 2**32)
random_documents = _numbers.map(lambda number: _document(Random(number)))


def written_and_mutated(write: Callable[[Content], JsonObject]) -> st.SearchStrategy[tuple[EventKind, Any]]:
    """A document that the dialect's `write` made, with one change."""
    return st.builds(lambda content, number: (kind_of(content), mutate(write(content), Random(number))), contents, _numbers)


def mutated(*documents: JsonObject) -> st.SearchStrategy[JsonObject]:
    """One of these, with one or two changes. The result is an object."""

    def one(document: JsonObject, number: int) -> JsonObject:
        random = Random(number)
        for _ in range(random.choice((1, 1, 2))):
            changed = mutate(document, random)
            document = changed if isinstance(changed, dict) else document
        return deepcopy(document)

    return st.builds(one, st.sampled_from(documents), _numbers)


def kind_of(content: Content) -> EventKind:
    return KINDS[type(content)]
