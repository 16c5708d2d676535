from hypothesis import given
from hypothesis import strategies as st

from everkept.families.bank.markdown_sections import (
    ISSUE_TITLES,
    TASK_TITLES,
    list_sections,
    list_titled_items,
    replace_list,
)

LINES = st.sampled_from(
    [
        "",
        "# Current Context",
        "## Ongoing Tasks",
        "## Tasks",
        "## Current Tasks",
        "## Known Issues",
        "### Later",
        "- a",
        "* [ ] b",
        "- c|  more of c",
        "1. d",
        "|prose",
        "prose",
        "<!-- a hint -->",
        "```",
        "---",
    ]
)
ITEMS = st.lists(st.sampled_from(["a", "[ ] b", "new", "two\nlines", "## odd", "d"]), max_size=4)


@st.composite
def documents(draw: st.DrawFn) -> str:
    end = draw(st.sampled_from(["\n", "\r\n"]))
    text = end.join(draw(st.lists(LINES, max_size=14))).replace("|", end)
    return text + draw(st.sampled_from(["", end]))


def words(text: str) -> list[str]:
    """The lines that are neither blank nor of a list of tasks."""
    kept = [line.strip() for line in text.splitlines()]
    return [line for line in kept if line in {"prose", "<!-- a hint -->", "### Later", "---"}]


def test_the_headings_for_tasks_are_one_list() -> None:
    text = "## Tasks\n- b\n\n## Ongoing Tasks\n- a\n\n## Current Tasks\n- c\n"
    assert list_titled_items(text, TASK_TITLES) == ["a", "c", "b"]


def test_lists_under_sub_headings_belong_to_it_unless_they_are_others() -> None:
    text = "## Ongoing Tasks\n- a\n### Later\n- b\n### Known Issues\n- no\n#### Old\n- no\n"
    assert list_titled_items(text, TASK_TITLES) == ["a", "b"]
    assert list_titled_items("# Tasks\n- a\n\n## Notes\n- no\n", TASK_TITLES) == ["a"]


def test_a_new_list_leaves_prose_comments_and_sub_headings() -> None:
    text = (
        "# C\n\n## Ongoing Tasks\n\nKept.\n\n- a\n* [x] b\n\n<!-- hint -->\n\n### Later\n\n- c\n\n"
        "## Known Issues\n- i\n"
    )
    assert replace_list(text, TASK_TITLES, ["new", "two\nlines"]) == (
        "# C\n\n## Ongoing Tasks\n\nKept.\n\n- new\n- two\n  lines\n\n<!-- hint -->\n\n"
        "### Later\n\n## Known Issues\n- i\n"
    )


def test_an_item_that_stays_keeps_its_own_lines() -> None:
    text = "## Ongoing Tasks\n* [ ] a\n    odd indentation\n+ b\n"
    wanted = [*list_titled_items(text, TASK_TITLES), "c"]
    assert replace_list(text, TASK_TITLES, wanted) == text + "- c\n"
    assert replace_list(text, TASK_TITLES, wanted[:1]) == "## Ongoing Tasks\n* [ ] a\n    odd indentation\n"


def test_the_order_of_a_new_list_is_kept() -> None:
    text = "## Ongoing Tasks\n\n- a\n- b\n"
    assert replace_list(text, TASK_TITLES, ["b", "a"]) == "## Ongoing Tasks\n\n- b\n- a\n"


def test_other_headings_of_the_same_meaning_are_merged_and_their_prose_stays() -> None:
    text = "## Ongoing Tasks\n\n- a\n\n## Tasks\n- b\n\n## Current Tasks\nprose\n- c\n"
    assert replace_list(text, TASK_TITLES, ["a", "b", "c"]) == (
        "## Ongoing Tasks\n\n- a\n- b\n- c\n\n## Current Tasks\nprose\n"
    )


def test_the_only_heading_gets_the_name_of_today() -> None:
    assert replace_list("# C\n\n## Tasks\n- a\n", TASK_TITLES, ["a", "b"]) == ("# C\n\n## Ongoing Tasks\n- a\n- b\n")
    assert replace_list("Tasks\n-----\n- a\n", TASK_TITLES, ["b"]) == "Ongoing Tasks\n-----\n- b\n"


def test_a_missing_section_is_made_and_an_empty_one_filled() -> None:
    assert replace_list("# C\n", ISSUE_TITLES, ["i"]) == "# C\n\n## Known Issues\n\n- i\n"
    assert replace_list("## Known Issues\n\n## B\n", ISSUE_TITLES, ["i"]) == ("## Known Issues\n\n- i\n\n## B\n")
    assert replace_list("## Known Issues", ISSUE_TITLES, ["i"]) == "## Known Issues\n\n- i"
    assert replace_list("# C\n", ISSUE_TITLES, []) == "# C\n"


def test_in_place_leaves_items_below_their_sub_headings() -> None:
    text = "## Ongoing Tasks\n- a\n\n### Later\n- b\n"
    assert replace_list(text, TASK_TITLES, ["a", "b", "c"], in_place=True) == (
        "## Ongoing Tasks\n- a\n- c\n\n### Later\n- b\n"
    )


def test_text_right_below_an_item_outlives_it() -> None:
    text = "## Ongoing Tasks\n- a\nwritten by hand\n- b\n  its own line\nmore by hand\n\n## B\n"
    assert list_titled_items(text, TASK_TITLES) == ["a", "b\nits own line"]
    assert replace_list(text, TASK_TITLES, ["new"]) == (
        "## Ongoing Tasks\n- new\n\nwritten by hand\n\nmore by hand\n\n## B\n"
    )
    assert replace_list(text, TASK_TITLES, [*list_titled_items(text, TASK_TITLES), "c"]) == (
        text.replace("more by hand\n", "more by hand\n- c\n")
    )


def test_an_open_fence_neither_hides_a_list_nor_makes_a_second_one() -> None:
    text = "# C\n\n## Ongoing Tasks\n\n```js\ncode\n\n## Known Issues\n\n- i\n"
    assert list_titled_items(text, ISSUE_TITLES) == ["i"]
    assert replace_list(text, ISSUE_TITLES, ["j"]) == text.replace("- i", "- j")
    edited = replace_list(text, TASK_TITLES, ["a"])
    assert edited == text.replace("```js", "- a\n\n```js")
    assert replace_list(edited, TASK_TITLES, ["a", "b"]) == edited.replace("- a\n", "- a\n- b\n")
    assert replace_list("# C\n\n```\ncode\n", TASK_TITLES, ["a"]) == ("# C\n\n```\ncode\n\n## Ongoing Tasks\n\n- a\n")


def test_what_two_lists_have_is_listed_once() -> None:
    text = "## Ongoing Tasks\n- a\n- a\n- [x] c\n\n## Tasks\n- [ ] A\n- b\n- c\n"
    assert list_titled_items(text, TASK_TITLES) == ["a", "a", "[x] c", "b", "c"]
    assert replace_list(text, TASK_TITLES, ["a", "b"]) == "## Ongoing Tasks\n- a\n- b\n\n"


@given(documents(), ITEMS)
def test_the_list_is_what_was_asked_for_and_nothing_else_is_lost(text: str, wanted: list[str]) -> None:
    edited = replace_list(text, TASK_TITLES, wanted)
    assert list_titled_items(edited, TASK_TITLES) == wanted
    assert list_titled_items(edited, ISSUE_TITLES) == list_titled_items(text, ISSUE_TITLES)
    assert words(edited) == words(text)
    names = {"Ongoing Tasks", "Tasks", "Current Tasks"}
    kept = [part.title for part in list_sections(edited) if part.title not in names]
    assert kept == [part.title for part in list_sections(text) if part.title not in names]


@given(documents(), ITEMS)
def test_the_same_list_again_changes_nothing(text: str, wanted: list[str]) -> None:
    edited = replace_list(text, TASK_TITLES, wanted)
    assert replace_list(edited, TASK_TITLES, wanted) == edited


def test_a_thousand_headings_of_one_meaning_become_one() -> None:
    text = "# T\n\n" + "".join(f"## Tasks\n\n- {n}\n\n" for n in range(3_000))
    tasks = list_titled_items(text, TASK_TITLES)
    assert len(tasks) == 3_000
    edited = replace_list(text, TASK_TITLES, [*tasks, "new"])
    assert list_titled_items(edited, TASK_TITLES) == [*tasks, "new"]
    assert len(list_sections(edited)) == 2


def test_headings_inside_each_other_go_when_nothing_is_left_below() -> None:
    text = "## Ongoing Tasks\n\n- a\n\n## Tasks\n\n### Current Tasks\n\n- b\n\n## End\n"
    edited = replace_list(text, TASK_TITLES, ["a", "b"])
    assert edited == "## Ongoing Tasks\n\n- a\n- b\n\n## End\n"


def test_a_task_that_moves_is_no_part_of_the_one_before() -> None:
    text = "## Ongoing Tasks\n\n- a\n\n## Tasks\n\n   - b\n     more of b\n\n\t c\n"
    edited = replace_list(text, TASK_TITLES, list_titled_items(text, TASK_TITLES))
    assert edited.startswith("## Ongoing Tasks\n\n- a\n- b\n  more of b\n")
    assert len(list_titled_items(edited, TASK_TITLES)) == 2
