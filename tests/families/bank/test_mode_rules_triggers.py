import pytest

from everkept.families.bank.mode_rules import (
    DEFAULT_TRIGGER,
    MAX_PATTERN_CHARACTERS,
    BadTrigger,
    compile_trigger,
    is_update_command,
)


@pytest.mark.parametrize("command", ["UMB", "umb", " Umb! ", "Update Memory Bank", "please update  memory\nbank now"])
def test_the_words_for_it_are_heard(command: str) -> None:
    assert is_update_command(command, None)


@pytest.mark.parametrize("command", ["number", "thumb", "umbrella", "update the bank", ""])
def test_other_words_are_not(command: str) -> None:
    assert not is_update_command(command, None)


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        (r"^(Update Memory Bank|UMB)$", "umb"),
        ("\b(umb)\b", "do UMB"),  # as YAML reads "\b" in double quotes
        (r"(?i)\bsave\s+all\b", "SAVE   all"),
        (r"sync\-up|\bstore\s*now", "please store now"),
        (r"(?:keep|hold) this", "Hold this"),
        (r"(save) (all)", "save all"),
    ],
)
def test_a_project_may_have_a_pattern_of_its_own(pattern: str, command: str) -> None:
    assert is_update_command(command, pattern)
    assert not is_update_command("thumb", pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "[a",
        r"(?<name>x)",
        "x" * (MAX_PATTERN_CHARACTERS + 1),
        "(a+)+$",
        "(a*)*b",
        "(a|a)*b",
        "(a|ab)+c",
        "((a+))+b",
        "(a?){30}b",
        "(a{1,9}){9}b",
        "a*a*a*a*b",
        "a?" * 30 + "a" * 30,
        r"(a)\1",
        "([)]+)+x",
        "(a|a)" * 22 + "b",
        "(a|b)c|d",
        "((a)b)",
        "umb)",
        "(umb",
        "umb|",
        "(|umb)",
        r"\b",
        r"\s*",
        "",
        r"^sync[- ]?up$",
        "u.b",
        r"\d",
        "umb\\",
        r"a\s*\s*" * 20 + "b",
        r"a\s*\b\s*" * 15 + "b",
        r"a\s*(\s*b)",
    ],
)
def test_a_pattern_that_is_none_or_may_never_end_is_refused(pattern: str) -> None:
    with pytest.raises(BadTrigger):
        compile_trigger(pattern)


def test_a_long_command_is_read_in_part_by_a_pattern_of_a_project() -> None:
    assert not is_update_command("a" * 5_000 + "b", "b$")


def test_no_pattern_that_is_taken_needs_long_for_a_command() -> None:
    assert not is_update_command("a " * 5_000, r"a\s*" * 45 + "b")


@pytest.mark.parametrize("words", ["please update the memory bank", "Update our  memory bank now", "umb"])
def test_an_article_does_not_matter(words: str) -> None:
    assert is_update_command(words, None)
    assert is_update_command(words, DEFAULT_TRIGGER)
    assert not is_update_command("read the memory bank", None)
