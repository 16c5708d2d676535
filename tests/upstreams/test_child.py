"""What programs write to stderr, and what of it reaches the log."""

import logging

import pytest

from everkept.upstreams.child import LOGGED, MOST_LINES, Remarks
from upstreaming import Clock


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def hide(text: str) -> str:
    return text.replace("hunter22", "***")


async def test_each_line_is_logged_with_the_name_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    remarks = Remarks("notes", hide)
    remarks.feed(b"rea")
    remarks.feed(b"dy\r\n \nport 80")
    remarks.finish()
    assert caplog.messages == ["notes: ready", "notes: port 80"]
    assert remarks.last() == "ready / port 80"


async def test_what_is_hidden_shows_neither_in_the_log_nor_in_the_last_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    remarks = Remarks("notes", hide)
    remarks.feed(b"x" * (LOGGED - 4) + b"hunter22\n")
    assert "hunt" not in caplog.text
    assert "hunt" not in remarks.last()


async def test_what_cannot_be_seen_is_escaped(caplog: pytest.LogCaptureFixture) -> None:
    remarks = Remarks("notes", hide)
    remarks.feed(b"\x1b[2Jgone\rforged \xff\n")
    [message] = caplog.messages
    assert message.isprintable()
    assert remarks.last().isprintable()


async def test_a_flood_is_cut_and_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    remarks = Remarks("notes", hide)
    remarks.feed(b"".join(b"line %d\n" % number for number in range(1000)))
    assert len(caplog.messages) == MOST_LINES
    await clock.goes_on(1.1)
    assert caplog.messages[MOST_LINES:] == [
        f"notes: {1000 - MOST_LINES} more lines within a second are left out"
    ]
    remarks.feed(b"calm again\n")
    remarks.finish()
    assert caplog.messages[-1] == "notes: calm again"
    assert remarks.last() == "line 998 / line 999 / calm again"


async def test_what_was_left_out_before_the_end_is_counted_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    remarks = Remarks("notes", hide)
    remarks.feed(b"line\n" * (MOST_LINES + 3))
    remarks.finish()
    assert "3 more lines" in caplog.messages[-1]


async def test_what_strays_onto_its_output_is_logged_once_and_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    remarks = Remarks("notes", hide)
    remarks.stray(b"x" * (LOGGED - 4) + b"hunter22 is the password")
    remarks.stray(b"Hello!")
    remarks.feed(b"ready\n")
    [warning, _] = caplog.messages
    assert "no message" in warning
    assert "hunt" not in caplog.text
    assert remarks.last().endswith("Hello! / ready")


async def test_a_line_without_an_end_is_among_the_last_words() -> None:
    remarks = Remarks("notes", hide)
    remarks.feed(b"one\ntwo\nPassword: ")
    assert remarks.last(b"Ok to proceed? ") == "two / Password: / Ok to proceed?"
    remarks.finish()
    assert remarks.last() == "one / two / Password:"
