"""Messages of JSON-RPC as text: what is sent to another server, and what comes from it."""

import json
import math
import sys
from typing import Any

from everkept.core.upstreams import JSON
from everkept.errors import InvalidInput, visible

_LONGEST_QUOTE = 50  # characters of a number


class Unreadable(ValueError):
    """What came is no JSON that could be passed on; the message says why, without a full stop."""


def written(message: JSON) -> bytes:
    """In ASCII: half a character is no UTF-8, and can be said all the same."""
    try:
        text = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            "The arguments cannot be sent: they hold NaN or Infinity, which are no JSON, or are "
            "nested too deep."
        ) from error
    return text.encode("ascii")


def read(text: bytes | str) -> Any:
    """Raises Unreadable, also for numbers that Python knows and JSON does not."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except Unreadable:
        raise
    except json.JSONDecodeError as error:
        raise Unreadable(str(error)) from error
    except UnicodeDecodeError as error:
        raise Unreadable("it is not encoded in UTF-8") from error
    except RecursionError as error:
        raise Unreadable("it is nested too deep") from error
    except ValueError as error:
        digits = f"{sys.get_int_max_str_digits():,}"
        raise Unreadable(f"it holds a number of more than {digits} digits") from error


def _refuse_constant(name: str) -> float:
    raise Unreadable(f"{name} is no number of JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):  # we could not write it again
        short = digits if len(digits) <= _LONGEST_QUOTE else digits[:_LONGEST_QUOTE] + "…"
        raise Unreadable(f"{visible(short)} is too large for a number")
    return number
