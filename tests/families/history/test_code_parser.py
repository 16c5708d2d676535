from hypothesis import given
from hypothesis import strategies as st

from everkept.families.history.code_parser import (
    MAX_LINE_CHARACTERS,
    FragmentPiece,
    find_missing_brackets,
    split_fragments,
    split_pieces,
)


def shown(text: str, language: str | None) -> list[tuple[str, str | None]]:
    return [(each.text, each.language) for each in split_fragments(text, language)]


def test_plain_code_is_one_fragment_as_it_is() -> None:
    text = "def f():\n    return g()\n"
    assert shown(text, "python") == [(text, "python")]


def test_a_gap_is_nothing_where_code_has_no_word_for_it() -> None:
    assert shown("a();\n  ...\n  … the rest …\nb();", "javascript") == [("a();\n  \n  \nb();", "javascript")]
    assert shown("f({\n  ...rest,\n})", "javascript") == [("f({\n  ...rest,\n})", "javascript")]


def test_a_gap_in_python_is_a_statement() -> None:
    assert shown("class A:\n    ... as before ...\n    …", "python") == [("class A:\n    ...\n    ...", "python")]


def test_of_a_python_prompt_what_was_typed_remains() -> None:
    text = ">>> for x in y:\n...     go(x)\n3\n>>> stop()"
    assert shown(text, "python") == [("for x in y:\n    go(x)\nstop()", "python")]


def test_a_patch_is_shown_as_it_leaves_each_file() -> None:
    text = "--- a/x.py\n+++ b/x.py\n@@ -1 +1,2 @@\n-old()\n+new()\n same()\n+++ y.go\n+run()\n"
    assert shown(text, "diff") == [("", None), ("\nnew()\nsame()", "python"), ("run()\n", "go")]


def test_the_patches_of_editing_tools_are_read_too() -> None:
    text = "*** Begin Patch\n*** Update File: src/a.go\n@@\n-func A() {}\n+func B() {}\n*** End Patch"
    assert shown(text, None)[-1] == ("\nfunc B() {}\n", "go")


def test_lines_with_signs_before_them_are_a_patch_whatever_the_fence_says() -> None:
    assert shown("-old()\n+new()\n same()", "python") == [("new()\nsame()", "python")]
    assert shown("    a()\n    b()", "python") == [("    a()\n    b()", "python")]


def test_packed_code_and_drawings_are_left_out() -> None:
    packed = "x=" + "y" * MAX_LINE_CHARACTERS
    drawing = "+----+----+\n|    |    |\n" * 100
    assert shown(f"a()\n{packed}\nb()", "javascript") == [("a()\nb()", "javascript")]
    [(text, _)] = shown("call(me)\n" * 120 + drawing + "call(me)\n" * 120, "python")
    assert text.count("call(me)") > 200
    assert text.count("+----+") < 60


def test_pieces_are_cut_between_definitions_and_else_say_that_they_go_on() -> None:
    text = "def a():\n    one\n    two\n\ndef b():\n    three\n    four\n    five\ndef c():\n    six"
    assert list(split_pieces(text, 28)) == [
        FragmentPiece("def a():\n    one\n    two\n"),
        FragmentPiece("def b():\n    three\n    four"),
        FragmentPiece("    five", is_continued=True),
        FragmentPiece("def c():\n    six"),
    ]


@given(st.text(alphabet="a }\n"), st.integers(1, 20))
def test_pieces_together_are_the_text(text: str, size: int) -> None:
    made = list(split_pieces(text, size))
    assert "\n".join(each.text for each in made) == text
    assert not made[0].is_continued
    assert all(len(each.text) <= size or "\n" not in each.text for each in made)


def test_what_is_open_at_the_end_is_closed() -> None:
    assert find_missing_brackets("class A { f() { return [1, (2") == ")]}}"
    assert find_missing_brackets("f(\"(\", '{', `[`) // (\n/* { ") == ""
    assert find_missing_brackets("} else {") == "}"


@given(st.text(alphabet="(){}[]\"'`/*\n ab"))
def test_what_was_closed_has_nothing_open(text: str) -> None:
    end = find_missing_brackets(text)
    assert set(end) <= set(")]}")
    assert len(end) <= sum(text.count(sign) for sign in "([{")


@given(st.text(), st.sampled_from([None, "python", "diff", "javascript"]))
def test_any_text_has_fragments(text: str, language: str | None) -> None:
    for fragment in split_fragments(text, language):
        assert "\0" not in fragment.text
