from everkept.families.history.search.wording import (
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
