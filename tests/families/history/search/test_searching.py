import pytest

from making import DAY_ONE
from recollect.core.ports import RecordStore
from recollect.families.history.search.filters import TimeRange
from recollect.families.history.search.recalling import Asking
from recollect.families.history.search.searching import recalled
from telling import DAY, MINUTE, tell


@pytest.mark.parametrize(
    ("time_range", "found"), [("today", 1), ("week", 1), ("month", 1), ("all", 2)]
)
async def test_a_turn_that_is_dated_in_the_future_is_in_no_time_range(
    store: RecordStore, time_range: TimeRange, found: int
) -> None:
    await tell(store, "s1", "The login form of tomorrow", at=DAY_ONE + DAY)
    await tell(store, "s2", "The login form of now", at=DAY_ONE)
    asking = Asking(now=DAY_ONE + MINUTE // 2)
    answer = await recalled(store, "login form", "all", None, time_range, 10, asking)
    assert len(answer.results) == found
