from hypothesis import given
from hypothesis import strategies as st

from everkept.cli.render import BAR_WIDTH, BLOCKS, PLAIN_BLOCKS, draw_bars

counts = st.lists(st.integers(0, 10**9), min_size=1, max_size=30)
heights = st.integers(1, 8)


def levels(lines: list[str], signs: str) -> list[int]:
    """How high each bar is."""
    columns = range(0, len(lines[0]), BAR_WIDTH + 1)
    return [sum(signs.index(line[column]) for line in lines) for column in columns]


@given(counts, heights, st.booleans())
def test_bars_are_as_high_as_what_they_show(values: list[int], height: int, plain: bool) -> None:
    signs = PLAIN_BLOCKS if plain else BLOCKS
    lines = draw_bars(values, height, plain=plain)
    assert len(lines) == height
    assert len({len(line) for line in lines}) == 1
    shown = levels(lines, signs)
    assert len(shown) == len(values)
    highest = height * (len(signs) - 1)
    for value, level in zip(values, shown, strict=True):
        assert (level == 0) == (value == 0)
        assert value < max(values) or value == 0 or level == highest
    ordered = [level for _, level in sorted(zip(values, shown, strict=True))]
    assert ordered == sorted(ordered)


def test_a_plain_chart_is_of_letters_that_every_terminal_knows() -> None:
    assert all(line.isascii() for line in draw_bars([1, 5, 9], 3, plain=True))


def test_a_chart_is_read_from_the_top() -> None:
    assert draw_bars([0, 4, 8], 2) == ["      ██", "   ██ ██"]


def test_nothing_is_a_chart_of_nothing() -> None:
    assert draw_bars([0, 0], 2) == ["     ", "     "]
