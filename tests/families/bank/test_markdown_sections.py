import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from everkept.families.bank.markdown_sections import (
    append_block,
    close_blocks,
    contain_text,
    find_open_block,
    find_section,
    find_sections,
    format_item_lines,
    get_body,
    insert_at_top,
    list_items,
    list_sections,
    parse_box,
    split_lines,
    strip_box,
    to_one_line,
)

LINES = st.sampled_from(
    [
        "",
        "",
        "# Top",
        "## Tasks",
        "## Other",
        "### Below",
        "Under",
        "===",
        "---",
        "- item",
        "- item|  more|  ## inside",
        "* [x] done",
        "1. first",
        "prose",
        "```",
        "~~~~",
        "<!-- one -->",
        "<!--",
        "-->",
        "\tindented",
        "    ## code",
        "> ## quoted",
        "***",
        "é 日本 \u2028 x",
    ]
)
ENDS = st.sampled_from(["\n", "\r\n"])


@st.composite
def documents(draw: st.DrawFn) -> str:
    end = draw(ENDS)
    bom = draw(st.sampled_from(["", "\ufeff"]))
    text = end.join(draw(st.lists(LINES, max_size=14))).replace("|", end)
    return bom + text + draw(st.sampled_from(["", end]))


def titles(text: str) -> list[tuple[str, int]]:
    return [(part.title, part.level) for part in list_sections(text)]


def test_a_section_reaches_to_the_next_heading_of_its_level_or_above() -> None:
    text = "# A\n\n## B\nb\n### C\nc\n## D\n"
    found = list_sections(text)
    assert [(s.title, s.level, s.heading, s.first, s.end) for s in found] == [
        ("A", 1, 0, 1, 7),
        ("B", 2, 2, 3, 6),
        ("C", 3, 4, 5, 6),
        ("D", 2, 6, 7, 7),
    ]
    assert get_body(text, found[1]) == "b\n### C\nc\n"


@pytest.mark.parametrize(
    "text",
    [
        "```\n## no\n```\n",
        "~~~ md\n## no\n```\n## no\n~~~\n",
        "````\n```\n## no\n````\n",
        "```\n# never closed\n",
        "<!--\n## no\n-->\n",
        "<!-- never closed\n# no\n",
        "---\n## no\ntitle: x\n---\n",
        "\ufeff---\ntags:\n- a\n## no\n...\n",
        "    ## code\n",
        "\t## code\n",
        "- item\n  ## inside an item\n",
        "1. item\n\n   ## inside an item\n",
        "> ## quoted\n",
        "##no blank\n",
        "####### seven\n",
        "- item\n---\n",
        "\\## escaped\n",
    ],
)
def test_what_only_looks_like_a_heading_is_none(text: str) -> None:
    assert titles(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Title\n=====\n", [("Title", 1)]),
        ("Two\nlines\n---\n", [("Two lines", 2)]),
        ("## Closed ##\n", [("Closed", 2)]),
        ("## C#\n", [("C#", 2)]),
        ("##\n", [("", 2)]),
        ("  ## Indented\r\ntext\r\n", [("Indented", 2)]),
        ("\ufeff# First\n", [("First", 1)]),
        ("text\n\n---\n\n## After a rule\n", [("After a rule", 2)]),
        ("---\n## No front matter without its end\n", [("No front matter without its end", 2)]),
        ("- item\n\n## After a list\n", [("After a list", 2)]),
        ("- item\n## Right after\n", [("Right after", 2)]),
        ("```\n```\n## After code\n", [("After code", 2)]),
        ("a <!-- inside a line -->\n## After it\n", [("After it", 2)]),
        ("# A\r## B\r", [("A", 1), ("B", 2)]),
    ],
)
def test_headings_of_every_form_are_found(text: str, expected: list[tuple[str, int]]) -> None:
    assert titles(text) == expected


def test_case_and_blanks_of_a_title_do_not_count() -> None:
    found = find_section("##   ONGOING   tasks\n", "Ongoing Tasks")
    assert found is not None
    assert find_section("## Tasks\n", "Other") is None


def test_the_earlier_title_wins_over_the_earlier_place() -> None:
    text = "## Tasks\n\n## Ongoing Tasks\n\n## Tasks\n"
    found = find_sections(text, "Ongoing Tasks", "Tasks")
    assert [part.heading for part in found] == [2, 0, 4]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n- b\n", ["a", "b"]),
        ("* a\n+ b\n1. c\n2) d\n", ["a", "b", "c", "d"]),
        ("- a\n  more\n  - nested\n- b\n", ["a\nmore\n- nested", "b"]),
        ("- a\nlazy\n\n  second paragraph\n", ["a\nlazy"]),
        ("- [ ] open\r\n- [x] done\r\n", ["[ ] open", "[x] done"]),
        ("prose\n\n- a\n\nprose\n- b\n", ["a", "b"]),
        ("```\n- code\n```\n<!--\n- hidden\n-->\n- seen\n", ["seen"]),
        ("- a\n\n---\n\n- b\n", ["a", "b"]),
        ("-not an item\n", []),
        ("", []),
    ],
)
def test_items_come_with_their_further_lines(text: str, expected: list[str]) -> None:
    assert list_items(text) == expected


def test_boxes_are_recognised() -> None:
    assert [parse_box(item) for item in ("[ ] a", "[x] a", "[X] a", "a", "[Task 1]")] == [False, True, True, None, None]
    assert strip_box("[x] a") == "a"


def test_a_missing_section_is_made_at_the_end() -> None:
    assert insert_at_top("# T\n", ["A"], "new") == "# T\n\n## A\n\nnew\n"
    assert insert_at_top("", ["A"], "new") == "## A\n\nnew\n"
    assert insert_at_top("# T\r\n\r\n", ["A"], "x\ny") == ("# T\r\n\r\n## A\r\n\r\nx\r\ny\r\n")


def test_a_block_is_put_right_under_the_heading() -> None:
    assert insert_at_top("## H\n\n- old\n", ["H"], "- new") == "## H\n\n- new\n- old\n"
    assert insert_at_top("## H\n- old\n", ["H"], "- new") == "## H\n- new\n- old\n"
    assert insert_at_top("## H\n\n## I\n", ["H"], "- new") == "## H\n\n- new\n\n## I\n"
    assert insert_at_top("## H\n\nprose\n", ["H"], "- new") == "## H\n\n- new\n\nprose\n"
    assert insert_at_top("## H", ["H"], "- new") == "## H\n\n- new"
    assert insert_at_top("\ufeff", ["H"], "- new") == "\ufeff## H\n\n- new\n"


@pytest.mark.parametrize("opened", ["```", "~~~~~", "<!--"])
def test_a_heading_ends_what_nothing_closes_and_nothing_is_added_to_the_text(opened: str) -> None:
    before = f"# T\n\n{opened}\n# code\n\n## Issues\n\n- x\n"
    assert titles(before) == [("T", 1), ("Issues", 2)]
    assert append_block(before, "## A\n\na") == f"{before}\n## A\n\na\n"
    assert insert_at_top(before, ["Issues"], "- y") == before.replace("- x", "- y\n- x")
    assert titles(insert_at_top(f"{opened}\nx\n", ["A"], "a")) == [("A", 2)]


def test_where_something_is_left_open_is_said_with_its_line() -> None:
    assert find_open_block("# T\n\n```js\nx\n\n## A\n\ntext\n") == "a code fence is open from line 3"
    assert find_open_block("\ufeff<!-- note\n## A\n") == "a comment is open from line 1"
    # One that is missing turns all later ones around; the first is where to look.
    assert find_open_block("```\nx\n\n## A\n\n```\ny\n```\n") == "a code fence is open from line 1"
    for text in ("# T\n", "```\n## A\n```\n", "<!-- a -->\n## A\n", "`a` ``b``\n"):
        assert find_open_block(text) is None


def test_what_is_quoted_of_a_file_can_be_closed() -> None:
    assert close_blocks("```js\nx\n\n## A\n") == "```js\nx\n\n## A\n```\n"
    assert close_blocks("text\n") == "text\n"


@given(documents(), st.sampled_from(["- one", "### E\n\ntext\n\n---"]))
def test_inserting_only_adds(text: str, block: str) -> None:
    edited = insert_at_top(text, ["Tasks"], block)
    found = find_section(edited, "Tasks")
    assert found is not None
    assert get_body(edited, found).lstrip("\r\n").startswith(block.splitlines()[0])
    assert _is_within(text, edited)
    if find_section(text, "Tasks"):
        assert [title for title in titles(edited) if title != ("E", 3)] == titles(text)


@given(documents(), st.sampled_from(["- one", "## New\n\ntext"]))
def test_line_ends_a_missing_last_one_and_the_mark_of_the_order_of_bytes_stay(text: str, block: str) -> None:
    edited = insert_at_top(text, ["Tasks"], block)
    bare = text.removeprefix("\ufeff")
    assert edited.startswith("\ufeff") == text.startswith("\ufeff")
    assert edited.endswith(("\n", "\r")) == (bare == "" or text.endswith(("\n", "\r")))
    if "\r\n" in text:
        assert "\n" not in edited.replace("\r\n", "")
    elif "\n" in text:
        assert "\r" not in edited


@given(st.text(st.sampled_from("#-=`~<!> \nab\\_*"), max_size=40))
def test_contained_text_is_no_structure(text: str) -> None:
    inside = contain_text(text)
    assert list_sections(f"## Before\n\n{inside}\n\n## After\n")[-1].title == "After"
    assert len(list_sections(f"## Before\n\n{inside}\n\n## After\n")) == 2
    assert contain_text(inside) == inside


def test_code_in_contained_text_stays_as_it_is() -> None:
    text = "Run\n\n```sh\n# a comment\n---\n```"
    assert contain_text(text) == text
    assert contain_text("## Heading\ntext\n---\n") == "\\## Heading\ntext\n\\---\n"


@given(st.lists(LINES, min_size=1, max_size=5).map("\n".join))
def test_any_text_stays_one_item(text: str) -> None:
    assume(text.strip())
    written = "\n".join(format_item_lines(text))
    assert len(list_items(written)) == 1
    assert titles(f"{written}\n\n## After\n") == [("After", 2)]


def test_one_line_has_no_second() -> None:
    assert to_one_line(" a\n ## b\u2028c\t d ") == "a ## b c d"


def _is_within(text: str, edited: str) -> bool:
    """Whether all lines of the text are in the other one, in their order."""
    rest = iter([line.rstrip("\r\n") for line in split_lines(edited.removeprefix("\ufeff"))])
    return all(line.rstrip("\r\n") in rest for line in split_lines(text.removeprefix("\ufeff")))


def test_free_text_of_nothing_but_underlines_is_no_structure() -> None:
    for line in ("-", "=", "## #", "***"):
        text = contain_text("a\n" + f"{line}\n" * 20_000)
        assert not list_sections(text)
