"""Bytes as text: what cannot be decoded, and lines by number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.errors import InvalidInput
from everkept.families.bank.bank_files import build_decoding_warning, decode_for_display, select_lines


def test_what_is_no_utf_8_is_marked_and_named() -> None:
    data = "Größe".encode("latin-1")
    assert decode_for_display(data) == "Gr\ufffd\ufffde"
    warning = build_decoding_warning("a.md", data)
    assert warning is not None
    assert warning.code == "not_utf8"
    assert build_decoding_warning("a.md", "Größe".encode()) is None


def test_marks_and_line_ends_stay() -> None:
    assert decode_for_display(b"\xef\xbb\xbfa\r\nb\r\n") == "\ufeffa\r\nb\r\n"


def test_lines_are_picked_by_number() -> None:
    data = b"one\r\ntwo\nthree"
    part = select_lines("a.md", data, 2, None)
    assert (part.data, part.first, part.last, part.total) == (b"two\nthree", 2, 3, 3)
    assert select_lines("a.md", data, 1, 1).data == b"one\r\n"
    assert select_lines("a.md", data, None, 99).data == data
    assert select_lines("a.md", b"", 1, None).total == 0


@pytest.mark.parametrize(("start", "end"), [(4, None), (3, 2), (99, 100)])
def test_lines_that_are_not_there_are_an_error(start: int, end: int | None) -> None:
    with pytest.raises(InvalidInput):
        select_lines("a.md", b"one\ntwo\nthree\n", start, end)


@given(st.binary(), st.integers(1, 5))
def test_picked_one_after_another_the_lines_are_the_file(data: bytes, size: int) -> None:
    total = select_lines("a.md", data, None, None).total
    parts = [select_lines("a.md", data, at, at + size - 1).data for at in range(1, total + 1, size)]
    assert b"".join(parts) == data


def test_a_carriage_return_alone_ends_a_line_too() -> None:
    data = b"one\rtwo\r\nthree\n\rfive"
    assert select_lines("a.md", data, 2, 2).data == b"two\r\n"
    assert select_lines("a.md", data, 4, None).data == b"\rfive"
    assert select_lines("a.md", data, 1, None).total == 5
    assert select_lines("a.md", b"one\r", 1, None).total == 1
