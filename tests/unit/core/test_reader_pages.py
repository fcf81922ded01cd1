"""How many tasks of a page are read at once."""

from __future__ import annotations

import pytest

from hub.core.tasks.reader import readable
from tests.contract.words import a_row

UNIT = 1024 * 1024


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ([], 0),
        ([1, 1, 1], 3),
        ([4 * UNIT, 4 * UNIT], 2),
        ([4 * UNIT, 4 * UNIT, 0], 3),
        ([4 * UNIT, 4 * UNIT, 1], 2),
        ([9 * UNIT], 1),
        ([9 * UNIT, 1], 1),
        ([1, 9 * UNIT, 1], 1),
    ],
)
def test_a_page_is_as_long_as_its_logs_are_small_and_has_one_task_at_least(sizes: list[int], count: int) -> None:
    assert readable([a_row(size=size) for size in sizes]) == count
