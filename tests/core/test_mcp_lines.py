"""Lines out of bytes, however these come."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.mcp import LineBuffer, OverlongLine, find_id

LIMIT = 20_000


def fed(lines: LineBuffer, *pieces: bytes) -> list[bytes | OverlongLine]:
    return [line for piece in pieces for line in lines.feed(piece)]


@given(st.lists(st.binary(max_size=30) | st.sampled_from([b"\n", b"a\n\nb"])))
def test_the_pieces_that_bytes_come_in_make_no_difference(pieces: list[bytes]) -> None:
    lines = LineBuffer(LIMIT)
    *whole, rest = b"".join(pieces).split(b"\n")
    assert fed(lines, *pieces) == whole
    assert lines.get_rest() == rest


def test_a_line_of_the_longest_length_is_whole() -> None:
    line = b"x" * LIMIT
    assert fed(LineBuffer(LIMIT), line, b"\n") == [line]


@given(st.integers(1, 7_000))
def test_of_a_longer_line_the_ends_are_left(size: int) -> None:
    line = b"<head>" + b"x" * LIMIT + b"<tail>"
    pieces = [line[start : start + size] for start in range(0, len(line), size)]
    [dropped, next_one] = fed(LineBuffer(LIMIT), *pieces, b"\nnext\n")
    assert isinstance(dropped, OverlongLine)
    assert dropped.head.startswith(b"<head>xxx")
    assert dropped.tail.endswith(b"xxx<tail>")
    assert len(dropped.head) + len(dropped.tail) < LIMIT
    assert next_one == b"next"


def test_two_that_are_too_long_are_two() -> None:
    first, second = fed(LineBuffer(LIMIT), b"a" * LIMIT, b"a\n", b"b" * LIMIT, b"b\n")
    assert isinstance(first, OverlongLine)
    assert isinstance(second, OverlongLine)
    assert (first.head[:1], first.tail[:1]) == (b"a", b"a")
    assert (second.head[:1], second.tail[:1]) == (b"b", b"b")


@pytest.mark.parametrize("written", [1, 123456789012345678, "a", "a-b:7", "ü", ""])
@pytest.mark.parametrize("is_first", [True, False])
def test_the_ends_of_a_message_tell_whose_it_is(written: str | int, is_first: bool) -> None:
    body = {"method": "tools/call", "params": {"id": 3, "x": "y" * 9000, "z": {"id": 4}}}
    named = {"jsonrpc": "2.0", "id": written}
    for order in (named, {"id": written, "jsonrpc": "2.0"}):
        message = order | body if is_first else body | order
        line = json.dumps(message, ensure_ascii=False).encode()
        assert find_id(line[:4096], line[-4096:]) == written


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc": "2.0", "method": "m", "params": {"id": 5}}',
        b'[{"jsonrpc": "2.0", "id": 5}]',
        b'"id": 5}',
        b'{"method": "m", "id": null}',
        b'{"method": "m", "id": "a\\"b"}',
        b"{" + b"x" * 5000,
    ],
)
def test_what_is_no_id_of_the_message_is_not_taken_for_one(line: bytes) -> None:
    assert find_id(line[:4096], line[-4096:]) is None
