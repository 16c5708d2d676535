"""Measurement of a model's background from texts of ours.

`background_texts.json` has rows of three: a statement, the same in other words, and a question that it answers. No two
rows have a subject in common.
"""

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.core.background import SHARES, Background

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TEXTS_FILE = Path(__file__).parent / "background_texts.json"
BACKGROUND_FILE = "background.json"  # beside a model that ships with the package
DECIMALS = 4


@lru_cache(1)
def read_texts() -> list[str]:
    """Return all statements, then their other wordings, then the questions, in the same order."""
    rows: list[list[str]] = json.loads(TEXTS_FILE.read_text(encoding="utf-8"))
    return [text for column in zip(*rows, strict=True) for text in column]


def read_background(folder: Path) -> Background:
    """Read what was measured of a shipped model."""
    measured: dict[str, list[float]] = json.loads((folder / BACKGROUND_FILE).read_text(encoding="utf-8"))
    return Background(**{pairs: tuple(cosines) for pairs, cosines in measured.items()})


def measure_background(vectors: "NDArray[np.float32]") -> Background:
    """Measure the background from the vectors of `read_texts`."""
    import numpy as np

    stated, reworded, asked = np.split(vectors.astype(np.float32), 3)
    others = ~np.eye(len(stated), dtype=bool)
    pairs = (asked @ stated.T, asked @ reworded.T, stated @ reworded.T, stated @ stated.T)
    unrelated = np.concatenate([cosines[others] for cosines in pairs])
    answers = np.concatenate([cosines.diagonal() for cosines in pairs[:2]])
    found = (np.quantile(cosines, SHARES) for cosines in (unrelated, answers, pairs[2].diagonal()))
    return Background(*(tuple(round(float(cosine), DECIMALS) for cosine in row) for row in found))
