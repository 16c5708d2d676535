from hypothesis import given
from hypothesis import strategies as st

from everkept.core.mcp import ToolUsage, sum_usage
from records import DAY_ONE

# Whole milliseconds: sums of them are exact, in whatever order they are made.
DURATIONS = st.integers(0, 10**6).map(float)
USAGES = st.builds(
    ToolUsage,
    tool=st.sampled_from(["search", "read", "Write", "größe"]),
    calls=st.integers(1, 1000),
    errors=st.integers(0, 1000),
    total_ms=DURATIONS,
    longest_ms=DURATIONS,
    last_at=st.integers(0, DAY_ONE),
)


def test_sums_of_one_tool_are_one_sum() -> None:
    rows = [ToolUsage("search", 2, 1, 30.0, 20.0, 5), ToolUsage("search", 1, 0, 8.0, 8.0, 9)]
    assert sum_usage(rows) == [ToolUsage("search", 3, 1, 38.0, 20.0, 9)]


def test_the_most_called_come_first_and_then_the_names() -> None:
    rows = [ToolUsage(tool, calls, 0, 0.0, 0.0, 0) for tool, calls in (("b", 1), ("c", 2), ("a", 1))]
    assert [usage.tool for usage in sum_usage(rows)] == ["c", "a", "b"]


def test_the_mean_is_that_of_all_calls() -> None:
    assert ToolUsage("search", 4, 0, 10.0, 7.0, 0).mean_ms == 2.5
    assert ToolUsage("search", 0, 0, 0.0, 0.0, 0).mean_ms == 0.0


@given(st.lists(USAGES), st.integers(0))
def test_nothing_is_lost_however_the_rows_are_added(rows: list[ToolUsage], cut: int) -> None:
    at = cut % (len(rows) + 1)
    whole = sum_usage(rows)
    assert sum_usage((*sum_usage(rows[at:]), *sum_usage(rows[:at]))) == whole
    assert sum(usage.calls for usage in whole) == sum(usage.calls for usage in rows)
    assert sum(usage.total_ms for usage in whole) == sum(usage.total_ms for usage in rows)
