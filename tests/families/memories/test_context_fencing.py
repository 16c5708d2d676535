from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.core.context_text import as_data, count_tokens
from everkept.families.memories.context import DATA_NOTICE, fence_memories


@settings(deadline=None)
@given(st.text(), st.text())
def test_the_frame_takes_as_many_tokens_whatever_it_holds(one: str, other: str) -> None:
    assert _frame_cost(f"- {as_data(one)}\n") == _frame_cost(f"- {as_data(other)}\n")


def _frame_cost(body: str) -> int:
    return count_tokens(fence_memories(body)) - count_tokens(body)


def test_memories_stand_behind_a_notice() -> None:
    assert fence_memories("- a\n").startswith(f"{DATA_NOTICE}\n<memories-")
