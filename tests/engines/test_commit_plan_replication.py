from typing import Any

import numpy as np
import pytest

from everkept.core.answers import AccessCount, RecordVector, StorePage
from everkept.core.records import Record, RecordLink
from everkept.engines.commit_plan import check_references, is_vector_outdated, list_record_ids
from everkept.errors import Conflict
from everkept.values import replace
from records import entity, link, note


def test_a_stock_names_its_records_what_they_belong_to_and_what_has_more() -> None:
    stock = StorePage(
        records=[entity("Ada"), note("Bob", "said"), note("Ada", "told")],
        links=[link("Cy", "knows", "Ada")],
        accesses={"Di": AccessCount(1, 1)},
        vectors={"a model": [RecordVector("Eve", 1, np.zeros(2, np.float32))], "none": []},
    )
    found = list_record_ids(stock)
    assert sorted(found) == ["Ada", "Bob", "Cy", "Di", "Eve", "said", "told"]


@pytest.mark.parametrize(
    ("item", "missing"),
    [(note("Bob", "said"), "Bob"), (link("Bob", "knows", "Ada"), "Bob"), (link("Ada", "knows", "Bob"), "Bob")],
)
def test_what_would_belong_to_nothing_is_named(item: Record | RecordLink, missing: str) -> None:
    check_references([item, entity("Ada")], {"Ada", "Bob"})
    with pytest.raises(Conflict, match=f"{item.id} refers to {missing}"):
        check_references([entity("Ada"), item], {"Ada"})


@pytest.mark.parametrize(
    ("change", "expected"), [({"text": "x"}, True), ({"name": "x"}, True), ({"importance": 1.0, "version": 2}, False)]
)
def test_a_vector_is_of_text_and_name(change: dict[str, Any], expected: bool) -> None:
    assert is_vector_outdated(entity("Ada"), replace(entity("Ada"), **change)) == expected
