import pytest

from everkept.core import stemming
from everkept.families.history.search import wording
from everkept.families.history.search.wording import (
    has_telling_words,
    on_one_line,
    said_in,
    sought_by,
)


def test_a_question_asks_for_no_stop_words_of_other_languages() -> None:
    assert sought_by("Wie haben wir das Ruckeln behoben?").stems == {"ruckeln", "behoben"}
    assert sought_by("das").stems  # there is nothing else


def test_what_a_mask_says_nobody_said() -> None:
    assert said_in("use [masked: aws key] here", sought_by("Which aws key is used?")) == {"us"}
    assert sought_by("use [masked: aws key] here").stems == {"us"}


def test_a_block_of_code_on_one_line_is_its_first_line() -> None:
    assert on_one_line("So: ```go\n\tx := 1\n\ty := 2\n``` done") == "So: `x := 1` …  done"
    assert on_one_line("cut ~~~\nx\ny") == "cut `x` … "
    assert on_one_line("no code, `x` alone") == "no code, `x` alone"


def test_a_path_is_one_telling_word() -> None:
    assert has_telling_words("Let me see web/src/Cart.tsx.", 2)
    assert not has_telling_words("Let me see web/src/Cart.tsx.", 3)
    assert has_telling_words("Perfect, that works. Thanks!", 1)
    assert not has_telling_words("Perfect, that works. Thanks!", 2)
    assert has_telling_words("文字化けの原因を調べて", 4)


def test_no_more_words_are_read_than_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(word: str) -> str:
        read.append(word)
        return stemming.stem(word)

    monkeypatch.setattr(wording, "stem", noted)
    assert has_telling_words("The garden has many flowers, trees and birds.", 2)
    assert read == ["garden", "many", "flowers"]
