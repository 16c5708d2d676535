from typing import Any

import pytest

from everkept.core.fallback_answers import is_selected
from everkept.core.records import RecordFilter
from records import DAY_ONE, note

RECORD = note(
    "p",
    "text",
    type="fact",
    scope="session",
    session="one",
    tags=("a", "b"),
    importance=0.4,
    occurred_at=DAY_ONE - 10,
    updated_at=DAY_ONE + 5,
)


@pytest.mark.parametrize(
    ("asked", "other"),
    [
        ({"kinds": ("observation",)}, {"kinds": ("entity",)}),
        ({"ids": ("text",)}, {"ids": ()}),
        ({"parents": ("p",)}, {"parents": ("q",)}),
        ({"types": ("fact",)}, {"types": ("event",)}),
        ({"scopes": ("session",)}, {"scopes": ("user",)}),
        ({"sessions": ("one",)}, {"sessions": ("two",)}),
        ({"visible_to": "one"}, {"visible_to": "two"}),
        ({"tags": ("b", "c")}, {"tags": ("c",)}),
        ({"min_importance": 0.4}, {"min_importance": 0.5}),
        ({"after": DAY_ONE - 10}, {"after": DAY_ONE - 9}),
        ({"before": DAY_ONE - 10}, {"before": DAY_ONE - 11}),
        ({"created_before": DAY_ONE}, {"created_before": DAY_ONE - 1}),
        ({"touched_after": DAY_ONE + 4}, {"touched_after": DAY_ONE + 5}),
        ({"deleted": None}, {"deleted": True}),
        ({}, {"name_keys": ("text",)}),
    ],
)
def test_a_record_fits_what_is_asked_and_nothing_else(asked: dict[str, Any], other: dict[str, Any]) -> None:
    assert is_selected(RECORD, RecordFilter(**asked))
    assert not is_selected(RECORD, RecordFilter(**other))
