"""What commands print of texts that others wrote."""

import asyncio
import io
import logging
import os
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from everkept.cli.flags import LineFormatter
from everkept.cli.runner import confirm, replace_controls

Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\ufffd[2J"),
        ("\x9b2J", "\ufffd2J"),
        ("a\u202eb", "a<U+202E>b"),
        ("a\u200bb\u200dc", "a<U+200B>b<U+200D>c"),
        ("\U000e0041", "<U+E0041>"),
        ("👩\u200d💻 می\u200cخواهم", "👩\u200d💻 می\u200cخواهم"),
        ("Ordinary text, Grüße\n\t名前", "Ordinary text, Grüße\n\t名前"),
    ],
)
def test_invisible_characters_are_shown_as_marks(text: str, shown: str) -> None:
    assert replace_controls(text) == shown


def test_a_memory_shows_its_invisible_characters_and_its_lines_are_set_apart(everkept: Run) -> None:
    everkept("remember", "Pay\u202e Anna\x9b2J\neverkept: done", "--project", "shop")
    for arguments in (("list",), ("recall", "Anna"), ("context", "Anna"), ("search-knowledge-graph", "Anna")):
        told = everkept(*arguments, "--project", "shop")
        assert not {"\u202e", "\x9b"} & {*told.out, *told.err}
        assert "everkept: done" not in told.out.splitlines()
    assert "Pay<U+202E> Anna" in everkept("list", "--project", "shop").out
    told = everkept("list", "--project", "shop", "--json")
    assert "\u202e" not in told.out
    assert told.json["memories"][0]["content"] == "Pay\u202e Anna\x9b2J\neverkept: done"


def test_a_sentence_for_assistants_names_commands_and_options(everkept: Run) -> None:
    told = everkept("pin", "memory:nothing", "--project", "x").err + everkept("pin", "nothing").err
    assert "`everkept recall`" in told
    assert "pass --project" in told
    assert "_" not in told


def test_a_text_from_outside_begins_no_line_of_the_log() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter("%(message)s"))
    handler.emit(logging.LogRecord("a", logging.INFO, "", 0, "file %s", ("x\nroot logged in\x1b[2J",), None))
    assert stream.getvalue() == "file x\\nroot logged in\\x1b[2J\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no umask for folders")
@pytest.mark.parametrize("mask", [0o000, 0o177])
def test_the_data_folder_is_private_whatever_the_umask(everkept: Run, tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        told = everkept("remember", "A fact", "--project", "shop")
    finally:
        os.umask(before)
    assert told.status == 0
    folders = [tmp_path / "data", *(each for each in (tmp_path / "data").rglob("*") if each.is_dir())]
    assert {stat.S_IMODE(each.stat().st_mode) for each in folders} == {0o700}


def test_a_question_within_the_event_loop_ends_with_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda _: signal.raise_signal(signal.SIGINT) or "y")

    async def ask() -> bool:
        return confirm("Erase it?", yes=False)

    with pytest.raises(click.Abort):
        asyncio.run(ask())
