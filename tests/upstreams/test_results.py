from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import UpstreamError
from recollect.upstreams.results import answered

OWN = "io.modelcontextprotocol/"
KEYS = st.text().filter(lambda key: key not in ("_meta", "resultType", "ttlMs", "cacheScope"))


@given(st.dictionaries(KEYS, st.none() | st.integers() | st.text()))
def test_what_the_protocol_adds_is_taken_off_and_nothing_else(own: dict[str, Any]) -> None:
    added = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    meta = {OWN + "serverInfo": {"name": "x"}}
    assert answered({**own, **added, "_meta": meta}, "notes") == own
    kept = own | {"_meta": {"example.org/a": 1}}
    assert answered({**own, **added, "_meta": meta | kept["_meta"]}, "notes") == kept
    assert answered(kept, "notes") == kept


@pytest.mark.parametrize("meta", [None, 7, {}, []])
def test_a_meta_of_another_shape_stays(meta: Any) -> None:
    assert answered({"_meta": meta}, "notes") == {"_meta": meta}


def test_a_result_that_asks_for_more_is_an_error() -> None:
    with pytest.raises(UpstreamError, match="input_required"):
        answered({"resultType": "input_required", "inputRequests": {}}, "notes")
