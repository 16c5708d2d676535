"""Which memories are about the same thing: how alike they are, and the groups that makes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from everkept.language.rarity import rarity_among

if TYPE_CHECKING:  # numpy takes a tenth of a second to import, and only who groups needs it
    import numpy as np
    from numpy.typing import NDArray


def likeness(
    words: Sequence[Sequence[str]], vectors: "Sequence[NDArray[np.float32] | None]"
) -> "NDArray[np.float32]":
    """How alike each two texts are, 1 at most: by their vectors, or by their words for want of one.

    `words` are the telling words of each text.
    """
    import numpy as np

    known = [row for row, vector in enumerate(vectors) if vector is not None]
    if len(known) == len(words) and known:
        return _cosines([vector for vector in vectors if vector is not None])
    # The root brings words to the model's scale: 0.15 of them shared is one topic, 0.6 one thing.
    alike = np.sqrt(_shared_words(words))
    if known:
        by_meaning = _cosines([vector for vector in vectors if vector is not None])
        alike[np.ix_(known, known)] = by_meaning
    return alike


def groups(alike: "NDArray[np.float32]", threshold: float) -> list[list[int]]:
    """Average linkage: the rows of each group are, on average, at least so much alike.

    The two nearest groups are joined as long as any are near enough; each row is in one group.
    By chains of nearest neighbours, so that 2,000 rows take a fraction of a second.
    """
    import numpy as np

    near = alike.astype(np.float32)
    np.fill_diagonal(near, -np.inf)
    members = [[row] for row in range(len(near))]
    waiting = np.ones(len(near), bool)
    chain: list[int] = []
    while waiting.any():
        if not chain:
            chain.append(int(waiting.argmax()))
        last = chain[-1]
        nearest = int(near[last].argmax())
        if near[last, nearest] < threshold:
            # Joining others brings them no nearer, and each link of the chain is weaker still.
            waiting[chain] = False
            chain.clear()
        elif len(chain) > 1 and near[last, chain[-2]] >= near[last, nearest]:
            del chain[-1]
            kept, joined = sorted((last, chain.pop()))
            _join(near, kept, joined, (len(members[kept]), len(members[joined])))
            members[kept] += members[joined]
            members[joined] = []
            waiting[joined] = False
        else:
            chain.append(nearest)
    return [sorted(rows) for rows in members if rows]


def _join(near: "NDArray[np.float32]", kept: int, joined: int, sizes: tuple[int, int]) -> None:
    import numpy as np

    row = (near[kept] * sizes[0] + near[joined] * sizes[1]) / sum(sizes)
    row[kept] = -np.inf
    near[kept] = near[:, kept] = row
    near[joined] = near[:, joined] = -np.inf


def _cosines(vectors: "Sequence[NDArray[np.float32]]") -> "NDArray[np.float32]":
    import numpy as np

    rows = np.stack(vectors).astype(np.float32)
    return rows @ rows.T


def _shared_words(words: Sequence[Sequence[str]]) -> "NDArray[np.float32]":
    """The cosine of the texts' words, each word weighted by how telling it is."""
    import numpy as np

    weights = rarity_among(words)
    holders: dict[str, list[int]] = {}
    for row, text in enumerate(words):
        for word in dict.fromkeys(text):
            holders.setdefault(word, []).append(row)
    alike = np.zeros((len(words), len(words)), np.float32)
    for word, rows in holders.items():
        alike[np.ix_(rows, rows)] += np.float32(weights[word] ** 2)
    lengths = np.sqrt(np.maximum(alike.diagonal(), np.float32(1e-9)))
    return (alike / lengths[:, None] / lengths[None, :]).astype(np.float32)
