import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.language.sentences import (
    list_block_surroundings,
    list_blocks,
    remove_blocks,
    split_sentences,
    take_beginning,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It works. Really! Is it so?", ["It works.", "Really!", "Is it so?"]),
        ("Python 3.11 runs app.py now. Good.", ["Python 3.11 runs app.py now.", "Good."]),
        ("Use a queue, e.g. Redis. Fine.", ["Use a queue, e.g. Redis.", "Fine."]),
        ("Call `a.b(). C` first. Then go.", ["Call `a.b(). C` first.", "Then go."]),
        ("これは文です。次の文です！終わり", ["これは文です。", "次の文です！", "終わり"]),
        ("- one\n* two\n3. three", ["one", "two", "three"]),
        ("He said “stop.” Then left.", ["He said “stop.”", "Then left."]),
        ("```py\nx = 1. Y\n\nz\n```\nDone.", ["```py\nx = 1. Y\n\nz\n```", "Done."]),
        ("def f():\n    return 1. X\nafter", ["def f():\n    return 1. X", "after"]),
        ("  \n\n", []),
        ("...", []),
    ],
)
def test_a_text_falls_into_its_sentences(text: str, expected: list[str]) -> None:
    assert split_sentences(text) == expected


def test_a_long_text_of_abbreviations_is_one_sentence() -> None:
    assert len(split_sentences("a. B " * 20_000)) == 1


@pytest.mark.parametrize(
    ("text", "begun"), [("one two", "one two"), ("one two three", "one two"), (" " * 20, ""), ("x" * 20, "x" * 9)]
)
def test_a_text_is_cut_at_a_word(text: str, begun: str) -> None:
    assert take_beginning(text, 9) == begun


@settings(deadline=None)
@given(st.text())
def test_sentences_are_made_of_the_text_alone(text: str) -> None:
    written = "".join(text.split())
    for sentence in split_sentences(text):
        assert "".join(sentence.split()) in written


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no code at all", []),
        ("```py\nx = 1\n```", [("py", "x = 1")]),
        ("~~~ruby\nputs 1\n~~~", [("ruby", "puts 1")]),
        ("```\nbare\n```", [("", "bare")]),
        ('before\n```js title="a.js"\nf()\n```\nafter', [('js title="a.js"', "f()")]),
        ("````md\n```py\nx\n```\n````", [("md", "```py\nx\n```")]),
        ("```\n~~~\nx\n~~~\n```", [("", "~~~\nx\n~~~")]),
        ("```py\nx = 1", [("py", "x = 1")]),
        ("```py\nx = 1\n``", [("py", "x = 1\n``")]),
        ("- step\n  ```sh\n  ls\n    -l\n  ```\n- next", [("sh", "ls\n  -l")]),
        ("1. ```go\n   f()\n   ```", [("go", "f()")]),
        ("\t```c\n\tint x;\n\t```", [("c", "int x;")]),
        ("> ```py\n> x = 1\n>\n> y = 2\n> ```", [("py", "x = 1\n\ny = 2")]),
        ("```one```", []),
        ("say ```x``` or\n```y``` here", []),
        ("```py\n\n   \n```", []),
        ("```a\n1\n```\n```b\n2\n```", [("a", "1"), ("b", "2")]),
        ("```a\n1\n```b\n2\n```", [("a", "1\n```b\n2")]),
        ("```py\r\nx\r\n```".replace("\r\n", "\n"), [("py", "x")]),
        ("`````\nx\n```\n`````", [("", "x\n```")]),
        ("```\nx\n````", [("", "x")]),
        ("```python:src/app.py\nx\n```", [("python:src/app.py", "x")]),
    ],
)
def test_blocks_are_found_wherever_markdown_allows_them(text: str, found: list[tuple[str, str]]) -> None:
    assert [(block.info, block.text) for block in list_blocks(text)] == found


@pytest.mark.parametrize("info", ["console", "text", "Output", "log", "plaintext copy"])
def test_what_a_program_printed_is_output(info: str) -> None:
    assert list_blocks(f"```{info}\nx\n```")[0].is_output


@pytest.mark.parametrize("info", ["py", "", "textile", "bash", "logo"])
def test_what_a_person_wrote_is_no_output(info: str) -> None:
    assert not list_blocks(f"```{info}\nx\n```")[0].is_output


def test_around_the_blocks_stands_what_was_said() -> None:
    said = remove_blocks("one\n```py\nx\n```\ntwo\n```\nnever closed")
    assert said.split() == ["one", "two"]


@given(st.lists(st.sampled_from(["```", "~~~", "```py", "````", "a", "", "  ```", "> ```", "- ```"])))
def test_any_lines_give_blocks_that_hold_something(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert all(block.text.strip() for block in list_blocks(text))


@given(st.text("ab =().\n"), st.sampled_from(["```", "~~~", "`````"]))
def test_a_block_gives_back_the_code_that_was_put_in(code: str, fence: str) -> None:
    found = list_blocks(f"see:\n{fence}py\n{code}\n{fence}\nthere")
    expected = code.strip("\n").rstrip()
    assert [block.text for block in found] == ([expected] if expected else [])


def test_the_paragraphs_around_a_block_belong_to_it() -> None:
    text = "Intro.\n\nFirst:\n```\na\n```\nSecond:\n```\nb\n```\nAbout b.\n\nThird:\n```\n\n```\n```\nc\n```\nThe end."
    assert [block.text for block in list_blocks(text)] == ["a", "b", "c"]
    first, second, third = list_block_surroundings(text)
    assert first.split() == ["Intro.", "First:"]
    assert second.split() == ["Second:", "About", "b."]
    assert "Third:" in third
    assert third.endswith("The end.")
    assert list_block_surroundings("No block.") == []
