"""Plain values in a Python pickle, read without executing any of it.

Programs pickle what they store. Loading such a file would let it run any code, so this reads only numbers, texts, lists
and mappings. Instances become mappings of their fields; their classes are never looked up.
"""

import io
import pickletools
from collections.abc import Callable
from typing import Any, cast

MAX_STEPS = 2_000_000  # of one value; a vector of 4,000 numbers takes as many steps

MAX_NUMBER_BITS = 2_048  # Python does not write far larger numbers as text
MAX_REPEATED = 16 * 1024 * 1024  # characters of texts that are used again

_LITERALS = """
    BININT BININT1 BININT2 LONG1 LONG4 INT LONG BINFLOAT FLOAT
    BINUNICODE SHORT_BINUNICODE BINUNICODE8 UNICODE
"""
_WITH_ARGUMENT = frozenset(_LITERALS.split())
_BLANKS = frozenset(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "GLOBAL"))  # values that nothing here uses
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_SET": list,
    "EMPTY_TUPLE": list,
}
_TUPLE_SIZES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK = object()


def read_pickled_value(raw: bytes) -> Any:
    """Return the value. Raise ValueError if the pickle is broken, or has more than plain values and their instances."""
    reader = _Reader()
    try:
        for step, (code, argument, _) in enumerate(pickletools.genops(io.BytesIO(raw))):
            if step == MAX_STEPS:
                raise ValueError("the pickle is too long")
            reader.take(code.name, argument)
        (value,) = reader.stack
    except (AttributeError, IndexError, TypeError, OverflowError) as error:
        raise ValueError("the pickle is broken") from error
    return value


class _Reader:
    """The stack of the format and its numbered values. Only texts and numbers can be used twice, so no cycle arises."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._repeated = 0

    def take(self, code: str, argument: Any) -> None:
        stack = self.stack
        if code in _WITH_ARGUMENT:
            if isinstance(argument, int) and argument.bit_length() > MAX_NUMBER_BITS:
                raise ValueError("the pickle has a number that is too large")
            stack.append(argument)
        elif code in _CONSTANTS:
            stack.append(_CONSTANTS[code]())
        elif code in _BLANKS:
            stack.append(None)
        elif code in ("MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT"):
            value = stack[-1]
            number = len(self._memo) if argument is None else argument
            self._memo[number] = value if isinstance(value, str | int | float) else None
        elif code in ("BINGET", "LONG_BINGET", "GET"):
            value = self._memo.get(argument)
            self._repeated += len(value) if isinstance(value, str) else 0
            if self._repeated > MAX_REPEATED:
                raise ValueError("the pickle repeats its texts too often")
            stack.append(value)
        elif code == "MARK":
            stack.append(_MARK)
        elif code not in ("PROTO", "FRAME", "STOP"):
            self._combine(code)

    def _combine(self, code: str) -> None:
        stack = self.stack
        if code in _TUPLE_SIZES:
            size = _TUPLE_SIZES[code]
            stack[-size:] = [stack[-size:]]
        elif code in ("TUPLE", "FROZENSET", "LIST"):
            stack.append(self._pop_marked())
        elif code == "DICT":
            stack.append(_pair(self._pop_marked()))
        elif code in ("APPEND", "APPENDS", "ADDITEMS"):
            added = [stack.pop()] if code == "APPEND" else self._pop_marked()
            cast(list[Any], stack[-1]).extend(added)
        elif code in ("SETITEM", "SETITEMS"):
            pairs = [stack.pop(-2), stack.pop()] if code == "SETITEM" else self._pop_marked()
            cast(dict[Any, Any], stack[-1]).update(_pair(pairs))
        elif code in ("STACK_GLOBAL", "NEWOBJ", "REDUCE"):
            stack.pop()
            stack[-1] = {} if code == "NEWOBJ" else None  # what a call would return is unknown
        elif code == "BUILD":
            state = stack.pop()
            if isinstance(state, dict):
                fields = cast(dict[str, Any], state)
                if not stack[-1]:
                    stack[-1] = {}
                cast(dict[str, Any], stack[-1]).update(fields.get("__dict__") or fields)
        else:
            raise ValueError(f"{code} is not part of a plain value")

    def _pop_marked(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise ValueError("the pickle is broken")
        found = self.stack[at + 1 :]
        del self.stack[at:]
        return found


def _pair(values: list[Any]) -> dict[str, Any]:
    """Return keys and values as a mapping of texts: numbers can be chosen so that finding each takes all others."""
    return {str(key): value for key, value in zip(values[::2], values[1::2], strict=True)}
