"""The content of the golden files in the model: one value for each file, by the file's name."""

from __future__ import annotations

from rolecall.model.a2a import TaskState
from rolecall.model.card import Capabilities, Extension, Interface, Profile, Provider, Skill
from rolecall.model.content import Artifact, ArtifactUpdate, Content, Message, Part, PartKind, Role, Status, StatusUpdate, Task

NOW = "2025-10-28T10:00:00.250Z"
QUESTION = Message(
    "m-1",
    Role.USER,
    (Part(PartKind.TEXT, "Which of these is right?"),),
    task_id="t-1",
    context_id="c-1",
    references=("t-0", "t-00"),
    extensions=("https://example.org/ext/tone/v1",),
    metadata={"kind": "question", "final": False, "role": "mine"},
)
REPLY = Message("m-2", Role.AGENT, (Part(PartKind.TEXT, "The second."),))
LETTER = Artifact("a-1", (Part(PartKind.TEXT, "Dear "), Part(PartKind.TEXT, "reader")), "draft", "The letter so far.")
FILE_PART = Part(PartKind.RAW, "iVBORw0KGgo=", "dot.png", "image/png", {"kind": "picture"})
LINK = Part(PartKind.URL, "https://example.org/report.pdf", "report.pdf", "application/pdf")
FIGURES = Part(PartKind.DATA, {"kind": "row", "value": [1, 2.5, None], "type": {"text": True}}, metadata={"final": True})


def message(*parts: Part) -> Message:
    return Message("m-3", Role.AGENT, parts, context_id="c-1")


def update(state: TaskState, text: str | None = None, **metadata: object) -> StatusUpdate:
    reply = None if text is None else Message("m-4", Role.AGENT, (Part(PartKind.TEXT, text),), "t-1", "c-1")
    return StatusUpdate("t-1", "c-1", Status(state, reply, NOW), metadata or None)


CONTENTS: dict[str, Content] = {
    "message-question": QUESTION,
    "message-reply": REPLY,
    "message-file-inline": message(FILE_PART),
    "message-file-linked": message(LINK),
    "message-data-object": message(FIGURES),
    "message-data-list": message(Part(PartKind.DATA, [1, "two", {"three": 3}], metadata={"a": 1})),
    "message-data-null": message(Part(PartKind.DATA, None)),
    "message-text-named": message(Part(PartKind.TEXT, "# Hello", "hello.md", "text/markdown")),
    "message-metadata-like-ours": message(
        Part(PartKind.TEXT, "x", metadata={"rolecall": {"filename": "theirs"}}),
        Part(PartKind.DATA, {"value": 1}, metadata={"data_part_compat": True}),
    ),
    "task-submitted": Task("t-1", "c-1", Status(TaskState.SUBMITTED, timestamp=NOW)),
    "task-working": Task(
        "t-1",
        "c-1",
        Status(TaskState.WORKING, Message("m-5", Role.AGENT, (Part(PartKind.TEXT, "Writing."),), "t-1", "c-1"), NOW),
        (QUESTION, REPLY),
        (LETTER, Artifact("a-2", (FIGURES,), extensions=("https://example.org/ext/rows/v1",), metadata={"rows": 1})),
    ),
    "task-completed": Task(
        "t-1", "c-1", Status(TaskState.COMPLETED, timestamp=NOW), artifacts=(LETTER,), metadata={"kind": "letter"}
    ),
    "task-unknown": Task("t-1", "c-1", Status(TaskState.UNKNOWN)),
    "status-working": update(TaskState.WORKING, "Using tool: search"),
    "status-input-required": update(TaskState.INPUT_REQUIRED, "Shall I go on?"),
    "status-auth-required": update(TaskState.AUTH_REQUIRED),
    "status-completed": update(TaskState.COMPLETED),
    "status-canceled": update(TaskState.CANCELED),
    "status-rejected": update(TaskState.REJECTED, "Not my trade."),
    "status-failed-by-hub": update(TaskState.FAILED, "The worker was lost.", rolecall={"reason": "WORKER_LOST"}),
    "artifact-first": ArtifactUpdate("t-1", "c-1", LETTER),
    "artifact-append": ArtifactUpdate("t-1", "c-1", Artifact("a-1", (Part(PartKind.TEXT, "s"),)), append=True),
    "artifact-last-chunk": ArtifactUpdate(
        "t-1", "c-1", Artifact("a-1", (LINK,)), append=True, last_chunk=True, metadata={"step": 3}
    ),
}

PROFILE = Profile(
    name="reviewer",
    description="Reads code and says what it thinks.",
    version="1.2.3",
    interfaces=(
        Interface("https://hub.example.org/agents/reviewer/", "JSONRPC", "1.0", "reviewer"),
        Interface("https://hub.example.org/agents/reviewer/", "JSONRPC", "0.3"),
        Interface("https://hub.example.org/agents/reviewer", "HTTP+JSON", "1.0"),
        Interface("https://hub.example.org/agents/reviewer/v1", "HTTP+JSON", "0.3"),
    ),
    capabilities=Capabilities(
        streaming=True,
        push_notifications=True,
        extended_card=True,
        extensions=(
            Extension("https://example.org/ext/tone/v1", "A tone of voice.", params={"tones": ["dry"]}),
            Extension("https://example.org/ext/rows/v1", required=True),
        ),
    ),
    skills=(
        Skill("review", "Review", "Reads a diff.", ("code", "diff"), ("Review #12",), ("text/x-diff",), ("text/markdown",)),
        Skill("explain", "Explain", "Says what a file is for.", requirements=({"login": ("read",)},)),
    ),
    input_modes=("text/plain", "text/x-diff"),
    output_modes=("text/markdown",),
    security_schemes={
        "token": {"type": "http", "scheme": "bearer", "bearerFormat": "opaque", "description": "One per caller."},
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        "login": {
            "type": "oauth2",
            "flows": {
                "authorizationCode": {
                    "authorizationUrl": "https://id.example.org/authorize",
                    "tokenUrl": "https://id.example.org/token",
                    "scopes": {"read": "See answers."},
                }
            },
        },
        "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://id.example.org/.well-known/openid-configuration"},
        "mtls": {"type": "mutualTLS"},
    },
    requirements=({"token": ()}, {"key": (), "login": ("read",)}),
    provider=Provider("Example", "https://example.org"),
    icon_url="https://example.org/icon.png",
    documentation_url="https://example.org/docs",
)
PLAIN = Profile(
    name="echo",
    description="Says it again.",
    version="1",
    interfaces=(
        Interface("http://127.0.0.1:8420/a2a", "JSONRPC", "1.0"),
        Interface("http://127.0.0.1:8420/a2a", "JSONRPC", "0.3"),
    ),
)
