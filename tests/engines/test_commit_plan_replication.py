from typing import Any

import numpy as np
import pytest

from everkept.core.answers import Access, Embedded, Stock
from everkept.core.records import Link, Record
from everkept.engines.commit_plan import check_belonging, is_retold, records_of
from everkept.errors import Conflict
from everkept.values import replace
from records import entity, link, note


def test_a_stock_names_its_records_what_they_belong_to_and_what_has_more() -> None:
    stock = Stock(
        records=[entity("Ada"), note("Bob", "said"), note("Ada", "told")],
        links=[link("Cy", "knows", "Ada")],
        accesses={"Di": Access(1, 1)},
        vectors={"a model": [Embedded("Eve", 1, np.zeros(2, np.float32))], "none": []},
    )
    found = records_of(stock)
    assert sorted(found) == ["Ada", "Bob", "Cy", "Di", "Eve", "said", "told"]


@pytest.mark.parametrize(
    ("item", "missing"),
    [
        (note("Bob", "said"), "Bob"),
        (link("Bob", "knows", "Ada"), "Bob"),
        (link("Ada", "knows", "Bob"), "Bob"),
    ],
)
def test_what_would_belong_to_nothing_is_named(item: Record | Link, missing: str) -> None:
    check_belonging([item, entity("Ada")], {"Ada", "Bob"})
    with pytest.raises(Conflict, match=f"{item.id} belongs to {missing}"):
        check_belonging([entity("Ada"), item], {"Ada"})


@pytest.mark.parametrize(
    ("change", "expected"),
    [({"text": "x"}, True), ({"name": "x"}, True), ({"importance": 1.0, "version": 2}, False)],
)
def test_a_vector_is_of_text_and_name(change: dict[str, Any], expected: bool) -> None:
    assert is_retold(entity("Ada"), replace(entity("Ada"), **change)) == expected
