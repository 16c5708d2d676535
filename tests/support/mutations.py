"""Valid bytes, and what an accident or an attacker makes of them."""

import re
from collections.abc import Sequence
from itertools import chain

from hypothesis import strategies as st

#: Values that JSON, or what Python takes for JSON, may have anywhere.
VALUES = (
    "null",
    "true",
    "-1",
    "0.5",
    "NaN",
    "-Infinity",
    "1e999",
    "99999999999999999999",
    "9" * 5_000,
    '""',
    "[]",
    "{}",
    "[[]]",
    '[null, 1, "a"]',
    '{"": {}}',
    '{"type": 1, "content": [1, {"text": {}}]}',
    '"1"',
    '"\\ud800"',
    '"\\u0000"',
    '"a\\nb\\u202e"',
    '"9999-12-31T23:59:59-14:00"',
    '"0001-01-01T00:00:00+14:00"',
    '"../../etc/passwd"',
    '"${HOME}"',
    '"' + "a" * 3_000 + '"',
    "[" * 90 + "]" * 90,
    "[" * 9_000 + "]" * 9_000,
    '{"a":' * 9_000 + "1" + "}" * 9_000,
)
#: Parts that parsers stumble over, as text so that each is readable here.
HOSTILE_TEXTS = (
    *VALUES,
    "",
    "\x00",
    "\x1b[31m",
    "\ufeff",
    "\u202e",
    "\u2028",
    "e\u0301" * 40,
    "İıſß",
    "🏳️‍🌈",
    "\r",
    "\r\n",
    "\r\n\r\n",
    "\n---\n",
    "```",
    "<!--",
    "# ",
    "- [ ] ",
    "&a [*a, *a]",
    "<<: *a",
    "!!python/object/apply:os.system [id]",
    "'",
    '"',
    "\\",
    ",",
    ":",
    "=",
    "(",
    "*" * 300,
    " " * 300,
    "a" * 3_000,
    "[" * 3_000,
    '{"a":' * 3_000,
    "[" * 300 + "]" * 300,
    "- " * 300,
    ">" * 300,
)
HOSTILE = (*(text.encode() for text in HOSTILE_TEXTS), b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80")
#: A word, a number or a text in quotes, in nearly every format, and whether it is a key of JSON.
_TOKEN = re.compile(rb'("(?:[^"\\\n]|\\.)*"|[\w.+-]+)([ \t]*:)?')

_places = st.floats(0, 1, exclude_max=True)
_values = st.sampled_from([value.encode() for value in VALUES])
_hostile = st.sampled_from(HOSTILE)
#: Most changes keep the form, so that most of what is behind it is reached too.
_ways = st.sampled_from((*["value"] * 6, "token", "insert", "cut", "drop", "double", "splice", "flip"))


@st.composite
def mutate(draw: st.DrawFn, samples: Sequence[bytes]) -> bytes:
    """One of the samples after a few small changes."""
    data = draw(st.sampled_from(samples))
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 2, 3, 5)))):
        data = _change(draw, data, samples)
    return data


def _change(draw: st.DrawFn, data: bytes, samples: Sequence[bytes]) -> bytes:
    start = int(draw(_places) * len(data))
    match draw(_ways):
        case "value":
            return _replace_token(data, start, draw(_values), with_keys=False)
        case "token":
            return _replace_token(data, start, draw(_hostile), with_keys=True)
        case "insert":
            return data[:start] + draw(_hostile) + data[start:]
        case "cut":
            return data[:start]
        case "drop":
            return data[:start] + data[start + draw(st.integers(1, 80)) :]
        case "double":
            end = start + draw(st.integers(1, 400))
            return data[:end] + data[start:]
        case "splice":
            other = draw(st.sampled_from(samples))
            return data[:start] + other[int(draw(_places) * len(other)) :]
        case _:
            flipped = bytes([data[start] ^ 1 << draw(st.integers(0, 7))]) if data else b""
            return data[:start] + flipped + data[start + 1 :]


def _replace_token(data: bytes, start: int, hostile: bytes, *, with_keys: bool) -> bytes:
    """Replace the token at or after a place. A key of JSON is followed by a colon."""
    for found in chain(_TOKEN.finditer(data, start), _TOKEN.finditer(data)):
        if with_keys or found[2] is None:
            return data[: found.start()] + hostile + (found[2] or b"") + data[found.end() :]
    return data
