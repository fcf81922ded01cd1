"""Pages of dead letters, for both engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rolecall.errors import InvalidParams
from rolecall.model.push import DeadLetter, DeadPage


class LetterMark(NamedTuple):
    """Where a page of dead letters ended."""

    at: float
    task: str
    config: str
    cursor: int

    def __str__(self) -> str:
        return f"{self.at!r}/{self.cursor}/{self.task}/{self.config}"

    @classmethod
    def of(cls, letter: DeadLetter) -> LetterMark:
        return cls(letter.at, letter.task, letter.config, letter.cursor)

    @classmethod
    def parse(cls, text: str) -> LetterMark:
        try:
            at, cursor, task, config = text.split("/", 3)
            return cls(float(at), task, config, int(cursor[:9]))
        except ValueError as error:
            raise InvalidParams("The page token is not one that this hub issued. Start again without it.") from error


def page_of(letters: Sequence[DeadLetter], limit: int) -> DeadPage:
    """`letters` holds up to `limit` + 1: one more than the page if there is a next page."""
    page = letters[:limit]
    return DeadPage(page, str(LetterMark.of(page[-1])) if len(letters) > len(page) > 0 else None)
