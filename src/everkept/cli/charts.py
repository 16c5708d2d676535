"""Small charts of characters."""

from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
PLAIN = " .:#"  # for terminals that know letters alone
WIDTH = 2  # of a bar


def bars(values: Sequence[int], height: int, *, plain: bool = False) -> list[str]:
    """Lines from top to bottom. The largest value is as high as the chart; what is not 0 shows."""
    signs = PLAIN if plain else BLOCKS
    steps = len(signs) - 1
    most = max(values, default=0)
    levels = [max(round(value / most * height * steps), 1) if value > 0 else 0 for value in values]
    return [
        " ".join(signs[min(max(level - row * steps, 0), steps)] * WIDTH for level in levels)
        for row in reversed(range(height))
    ]
