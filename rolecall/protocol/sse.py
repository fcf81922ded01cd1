"""Server-sent events: a frame writer, and a frame reader with bounded memory."""

from __future__ import annotations

from rolecall.model.value import Value

KEEP_ALIVE = b": keep-alive\n\n"
COME_BACK = b"retry: 2000\n\n"
"""The end of a stream that the hub closes before its task ends: reconnect with the last id after two seconds."""
RESPONSE_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


_LONG = 64 * 1024


class Frame(Value, frozen=True):
    data: bytes
    id: str | None
    event: str | None


class FrameTooLong(ValueError):
    """A line or an event is longer than the reader's limit."""


def write_frame(data: bytes, *, cursor: int | None = None, event: str | None = None) -> bytes:
    """One frame. `data` is JSON without line breaks, because some readers keep only an event's last `data:` line."""
    head = b"id: %d\n" % cursor if cursor is not None else b""
    if event is not None:
        head += b"event: %b\n" % event.encode()
    return b"%bdata: %b\n\n" % (head, data)


def write_id(cursor: int) -> bytes:
    """The id of the newest event for a client that comes back, without an event."""
    return b"id: %d\n\n" % cursor


class FrameReader:
    """Returns the frames that a chunk of bytes completes. Comments are ignored."""

    __slots__ = ("_data", "_ended_in_cr", "_event", "_id", "_limit", "_rest", "_rest_size", "_size", "held")

    def __init__(self, *, limit: int = 1024 * 1024) -> None:
        self._limit = limit
        # An unfinished line stays in pieces until its end arrives: joining it for every chunk would be quadratic.
        self._rest: list[bytes] = []
        self._rest_size = 0
        self._data: list[bytes] = []
        self._size = 0
        self._id: str | None = None
        self._event: str | None = None
        self._ended_in_cr = False
        self.held = 0
        """Bytes of a frame that has not ended."""

    def feed(self, chunk: bytes) -> list[Frame]:
        if chunk and (self._ended_in_cr or b"\r" in chunk):
            chunk = self._without_cr(chunk)
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if lines and self._rest:
            self._end_rest(lines)
        frames: list[Frame] = []
        data = self._data
        # No calls for a usual line: every event of a stream comes through here.
        for line in lines:
            if not line:
                if data:
                    frames.append(Frame(data[0] if len(data) == 1 else b"\n".join(data), self._id, self._event))
                    data.clear()
                    self._size, self._id = 0, None
                self._event = None
                continue
            value = line[6:] if line.startswith(b"data: ") else self._field(line)
            if value is not None:
                # One more for the line itself: empty lines need memory too.
                self._size += len(value) + 1
                if self._size > self._limit:
                    raise FrameTooLong(f"an event of over {self._limit} bytes")
                data.append(value)
        if rest:
            self._keep(rest)
        self.held = self._rest_size + self._size
        return frames

    @property
    def last_id(self) -> str | None:
        """An id that has come, and no data behind it yet."""
        return self._id

    def _end_rest(self, lines: list[bytes]) -> None:
        """The first of these lines ends the unfinished one. A long line of data goes to the data without another copy of it."""
        rest, size = self._rest, self._rest_size + len(lines[0])
        self._rest, self._rest_size = [], 0
        rest.append(lines[0])
        if size <= _LONG or not rest[0].startswith(b"data: "):
            lines[0] = b"".join(rest)
            return
        rest[0] = rest[0][6:]
        self._size += size - 5
        if self._size > self._limit:
            raise FrameTooLong(f"an event of over {self._limit} bytes")
        self._data.append(b"".join(rest))
        del lines[0]

    def _without_cr(self, chunk: bytes) -> bytes:
        """The chunk with each line ended by a line feed alone."""
        if self._ended_in_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._ended_in_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _keep(self, rest: bytes) -> None:
        self._rest.append(rest)
        self._rest_size += len(rest)
        if self._rest_size + self._size > self._limit:
            raise FrameTooLong(f"a line of over {self._limit} bytes")

    def _field(self, line: bytes) -> bytes | None:
        """The data in that line, if it has some."""
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            return value
        if name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")[:256]
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")[:64]
        return None
