"""Vectors on their way to the database and back: text there, and its own bytes from there."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # numpy is loaded by whoever brings vectors
    import numpy as np
    from numpy.typing import NDArray

_HEAD = 4  # bytes before the numbers: how many there are, and what is unused


def halves_to(vector: "NDArray[np.float32]") -> str:
    """As the database reads it; five digits tell every half from the next."""
    import numpy as np

    return f"[{','.join([f'{x:.5g}' for x in vector.astype(np.float16).tolist()])}]"


def floats_to(vector: "NDArray[np.float32]") -> str:
    return f"[{','.join([f'{x:.9g}' for x in vector.tolist()])}]"


def halves_from(sent: bytes) -> "NDArray[np.float32]":
    """Of what `halfvec_send` gives."""
    import numpy as np

    return np.frombuffer(sent, ">f2", offset=_HEAD).astype(np.float32)
