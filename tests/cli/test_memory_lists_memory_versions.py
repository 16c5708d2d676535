from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everkept.cli.memory_lists import MAX_COMPARED_WORDS, draw_difference

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository to work in, so that memories have a project."""
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shop")


def store(everkept: Run, *arguments: str) -> str:
    return everkept("remember", *arguments, "--json").json["memory_id"]


def test_every_version_is_shown_with_the_words_that_changed(everkept: Run) -> None:
    memory = store(everkept, "Orders listen on port 8080", "--tag", "net")
    everkept("edit", memory, "Orders listen on port 8443")
    everkept("edit", memory, "--tag", "tls")
    everkept("pin", memory)
    everkept("forget", memory, "--reason", "moved")
    shown = everkept("history-of", memory)
    assert shown.out.startswith(f"{memory}  shop  5 versions\n")
    details = [line.strip() for line in shown.out.splitlines() if line.startswith("   ")]
    assert details == [
        "forgotten reason: {+moved+}",
        "pinned: {+yes+}",
        "tags: [-net-]{+net, tls+}",
        "Orders listen on port [-8080-]{+8443+}",
        "Orders listen on port 8080",
    ]
    assert "forgotten  shop:5  forget_memory  command line\n" in shown.out


def test_the_beginning_of_an_id_is_enough(everkept: Run) -> None:
    memory = store(everkept, "Tea is in the upper drawer", "--scope", "user")
    (version,) = everkept("history-of", memory.removeprefix("memory:")[:14], "--json").json["versions"]
    assert (version["change"], version["operation"]) == ("@user:1", "insert")
    assert version["values"]["text"] == "Tea is in the upper drawer"
    assert version["at"].endswith("Z")


def test_the_beginning_of_several_ids_lists_them(everkept: Run) -> None:
    first, second = store(everkept, "one"), store(everkept, "two")
    shared = next(n for n in range(len(first)) if first[n] != second[n])
    refused = everkept("history-of", first[:shared])
    assert refused.status == 2
    assert first in refused.err
    assert second in refused.err


def test_an_unknown_id_and_one_of_another_project_are_not_found(everkept: Run, tmp_path: Path) -> None:
    assert everkept("history-of", "memory:unknown").status == 2
    memory = store(everkept, "elsewhere", "--project", "other")
    assert everkept("history-of", memory).status == 2
    assert everkept("history-of", memory, "--project", "other").status == 0


def test_what_others_wrote_is_shown_as_text(everkept: Run) -> None:
    memory = store(everkept, "turned \u202e [bold]text[/bold]")
    shown = everkept("history-of", memory).out
    assert "turned <U+202E> " in shown
    assert "[bold]text[/bold]" in shown


def test_long_texts_are_shown_one_after_the_other() -> None:
    many = "word " * MAX_COMPARED_WORDS
    assert draw_difference(many, "short").plain == f"[-{many}-]{{+short+}}"


def test_the_parts_of_a_difference_give_both_texts() -> None:
    drawn = draw_difference("a b c d", "a x c d e").plain
    assert drawn == "a [-b-]{+x+} c d{+ e+}"
