import json
import os
import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.language.plain_text import to_plain_text
from server_processes import HANG, command, environment

Run = Callable[..., Any]

ANSWER = """## Decision
We chose a **token bucket** for *logins*, with `LIMIT = 2*3`:

```python
rate = 2 ** burst * limit
```
"""


@pytest.fixture
def talked(everkept: Run, tmp_path: Path, home_without_clients: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A conversation is imported, and a memory and an entity are stored."""
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shop")
    turns = [("Ada", "How do we limit logins?"), ("assistant", ANSWER)]
    lines = [
        {
            "session": "one",
            "author": author,
            "timestamp": f"2026-03-02T09:0{at}:00Z",
            "text": text,
            "project": "/work/shop",
        }
        for at, (author, text) in enumerate(turns)
    ]
    path = tmp_path / "talks.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert everkept("import", "history", "--source", "jsonl", str(path)).status == 0
    everkept("remember", "The login page limits attempts per minute and per address, to slow attackers down")
    everkept("create-entities", "name=Login service", "entity_type=service")
    return everkept


def show_on_terminal(columns: int, *arguments: str, **variables: str) -> str:
    """What the command prints on a terminal of this width."""
    controller, terminal = os.openpty()
    parts: list[bytes] = []

    def read() -> None:
        try:
            while part := os.read(controller, 4096):
                parts.append(part)
        except OSError:  # the terminal is closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    given = {"EVERKEPT_DATA_DIR": os.environ["EVERKEPT_DATA_DIR"], "COLUMNS": str(columns), "TERM": "xterm-256color"}
    subprocess.run(
        command(*arguments), stdout=terminal, env=environment() | given | variables, timeout=HANG, check=True
    )
    os.close(terminal)
    reader.join(HANG)
    os.close(controller)
    return b"".join(parts).decode().replace("\r\n", "\n")


def test_everything_is_found_as_typed(talked: Run) -> None:
    shown = talked("find", "limit", "logins").out
    assert "token bucket" in shown
    assert "The login page limits" in shown
    assert re.search(r"^ {6}memory · just now · 0[0-9A-Z]{7}$", shown, re.MULTILINE)
    assert talked("find", "logins", "--json").json["results"]
    assert "Nothing found" in talked("find", "zebra").out
    assert talked("find", " ").status == 2


@pytest.mark.parametrize(
    "words", [("find",), ("recall-previous-discussions",), ("find-similar-problems",), ("unified-memory-search",)]
)
def test_people_get_plain_text(talked: Run, words: tuple[str, ...]) -> None:
    shown = talked(*words, "which bucket limits logins").out
    assert "We chose a token bucket for logins, with LIMIT = 2*3" in shown
    assert "rate = 2 ** burst * limit" in shown
    for markup in ("**", "```", "###", "<conversations", "View full context", "\x1b"):
        assert markup not in shown.replace("2 ** burst", "")


def test_a_conversation_is_read_by_the_id_that_a_search_shows(talked: Run) -> None:
    shown = talked("recall-previous-discussions", "limit logins").out
    short = re.search(r"turn_[0-9a-f]{8}$", shown, re.MULTILINE)
    assert short is not None
    read = talked("read-conversation", short[0]).out
    assert read.index("How do we limit logins?") < read.index("We chose a token bucket for logins")
    assert "<conversations" not in read
    listed = re.search(r"conv_[0-9a-f]{8}$", talked("history", "list").out, re.MULTILINE)
    assert listed is not None
    assert talked("history", "forget", "--conversation", listed[0], "--yes", "--json").json["turns"] == 2


def test_a_model_still_gets_fences(talked: Run) -> None:
    shown = talked("recall-previous-discussions", "limit logins", "--format", "markdown").out
    assert "<conversations" in shown


def test_hits_are_marked_on_a_terminal_only(talked: Run) -> None:
    marked = show_on_terminal(60, "find", "login limits")
    assert re.search(r"\x1b\[[0-9;]*mlimits\x1b\[0m", marked)
    assert "\x1b" not in show_on_terminal(60, "find", "login limits", NO_COLOR="1")
    assert "\x1b" not in talked("recall", "login limits").out


@pytest.mark.parametrize("columns", [40, 60])
def test_results_wrap_between_words(talked: Run, columns: int) -> None:
    for words in (("recall", "login attempts"), ("find", "login attempts")):
        lines = show_on_terminal(columns, *words, NO_COLOR="1").splitlines()
        assert max(map(len, lines)) <= columns
        assert "attackers" in " ".join(lines).split()
    assert "The login page limits attempts per minute and per address, to slow attackers down\n" in talked("list").out


def test_names_with_underscores_are_not_markup() -> None:
    assert to_plain_text("**Call** `__init__` in __main__.py") == "Call __init__ in __main__.py"


def test_a_link_shows_its_words_and_its_address(everkept: Run, repository: Path) -> None:
    assert (
        to_plain_text("see [the *notes*](http://x/y) and [[Orders DB]]")
        == "see the notes (http://x/y) and [[Orders DB]]"
    )
    everkept("remember", "We deploy on **Fridays**, see [notes](http://x)")
    for words in (("log",), ("timeline",), ("list",), ("recall", "deploy fridays"), ("undo",)):
        shown = " ".join(everkept(*words).out.split())
        assert "We deploy on Fridays, see notes (http://x)" in shown, words


@given(st.text("a*_`#> \n~", max_size=60))
def test_any_text_becomes_plain(text: str) -> None:
    shown = to_plain_text(text)
    assert "```" not in shown
    assert shown.count("a") <= text.count("a")
