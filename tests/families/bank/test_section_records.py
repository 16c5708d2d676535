import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.times import format_iso
from everkept.families.bank.core_files import TEMPLATES
from everkept.families.bank.section_records import MAX_PART_CHARACTERS, find_moment, split_parts

PROGRESS = """# Project Progress

## Completed Milestones

- Login works

## Update History

- [2026-02-13 10:30:00] [Alice] - Fix: the form

### Details

More of it.
"""


def entries(numbers: range) -> str:
    """A long list, each entry of another length."""
    return "".join(f"- entry {i} {'word ' * (i % 17)}end\n" for i in numbers)


def test_each_heading_with_something_below_it_is_a_part() -> None:
    found = [(p.heading, p.line, p.last) for p in split_parts(PROGRESS, is_markdown=True)]
    assert found == [
        ("Project Progress > Completed Milestones", 3, 5),
        ("Project Progress > Update History", 7, 9),
        ("Project Progress > Update History > Details", 11, 13),
    ]


def test_what_stands_before_the_first_heading_is_a_part_without_one() -> None:
    before, after = split_parts("\nHello\n\n# One\n\ntext\n", is_markdown=True)
    assert (before.heading, before.text.strip()) == ("", "Hello")
    assert after.heading == "One"


def test_a_heading_in_json_is_none() -> None:
    (part,) = split_parts('{\n"a":\n# b\n1}\n', is_markdown=False)
    assert (part.heading, part.line, part.last) == ("", 1, 4)


@given(st.text(alphabet="ab #-\n\r`=é", max_size=400), st.integers(min_value=1, max_value=40), st.booleans())
def test_parts_are_what_stands_there_and_lose_only_headings_and_blanks(
    text: str, times: int, is_markdown: bool
) -> None:
    text *= times
    parts = split_parts(text, is_markdown=is_markdown)
    end = 0
    for part in parts:
        assert text[part.start : part.start + len(part.text)] == part.text
        assert part.start >= end
        assert part.text.strip()
        assert part.line <= part.last
        end = part.start + len(part.text)
    if not is_markdown:
        assert "".join("".join(part.text.split()) for part in parts) == "".join(text.split())


@given(st.lists(st.integers(min_value=0, max_value=3 * MAX_PART_CHARACTERS), max_size=30))
def test_no_part_is_too_long(lengths: list[int]) -> None:
    text = "# Title\n\n" + "".join("x" * length + "\n" for length in lengths)
    assert all(len(part.text) <= MAX_PART_CHARACTERS for part in split_parts(text, is_markdown=True))


def test_an_entry_on_top_changes_few_parts_of_a_long_list() -> None:
    old = {part.text for part in split_parts("## Log\n\n" + entries(range(2_000)), is_markdown=True)}
    longer = "## Log\n\n- a new one, first of all\n" + entries(range(2_000))
    new = {part.text for part in split_parts(longer, is_markdown=True)}
    assert len(old) > 40
    assert len(new - old) <= 10


def test_the_date_of_an_entry_is_read_in_all_three_forms() -> None:
    for text in ("- [2026-02-13 10:30:00] [Alice] - Fix: x", "- **Date:** 2026-02-13 10:30:00"):
        assert format_iso(find_moment(text) or 0) == "2026-02-13T10:30:00.000Z"
    assert format_iso(find_moment("### [Feb 3, 2026, 10:30 AM] Feature: x") or 0)[:10] == "2026-02-03"
    assert find_moment("- [2026-02-31] no such day") is None
    assert find_moment("Built in 2026-02-13 by hand") is None


HISTORY = """# Project Progress

## Update History

- [2026-02-14 09:00:00] [Bob] - Chore: the newest

### [Feb 13, 2026, 10:30 AM] ✨ Feature: the cart
<!-- ID: p_2026-02-13_x -->

It has a total.

```yaml
---
a: 1
```

---

- [2026-02-12 10:30:00] [Alice] - Fix: the form

### Details

More of it.

---

Still more.
"""


def test_what_follows_the_rule_of_an_entry_belongs_to_the_heading_above() -> None:
    found = [(p.heading, p.line, p.last) for p in split_parts(HISTORY, is_markdown=True)]
    history = "Project Progress > Update History"
    assert found == [
        (history, 3, 5),
        (f"{history} > [Feb 13, 2026, 10:30 AM] ✨ Feature: the cart", 7, 15),
        (history, 19, 19),
        (f"{history} > Details", 21, 27),
    ]


def test_each_dated_entry_of_a_long_history_is_a_part() -> None:
    lines = [f"- [2026-02-13 10:{i:02}:00] [Al] - Fix: number {i}" for i in range(60)]
    lines[30] += "\n  with a second line"
    text = "# P\n\n## Update History\n\n" + "\n".join(lines) + "\n"
    first, *others = [part.text for part in split_parts(text, is_markdown=True)]
    assert first == f"## Update History\n\n{lines[0]}\n"
    assert others == [f"{line}\n" for line in lines[1:]]


def test_a_short_history_and_the_head_of_a_long_decision_stay_together() -> None:
    short = "## History\n\n" + "- [2026-02-13 10:30:00] [Al] - Fix: x\n" * 5
    assert len(split_parts(short, is_markdown=True)) == 1
    head = "## Use it\n\n- **Author:** Al\n- **Date:** 2026-02-13\n"
    decision = f"{head}- **Context:** {'word ' * 395}\n- **Decision:** yes\n"
    assert split_parts(decision, is_markdown=True)[0].text == head


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_a_template_leaves_to_be_written_is_no_part(name: str) -> None:
    assert split_parts(TEMPLATES[name], is_markdown=True) == []


@pytest.mark.parametrize(
    "body",
    [
        "- [Objective 1]\n- Sell books",
        "[Home](https://example.com)",
        "**Important:**",
        "- [ ] Ship it",
        "- **Date:** 2026-02-13\n- **Context:** [What made it necessary]",
    ],
)
def test_what_somebody_wrote_beside_placeholders_is_a_part(body: str) -> None:
    assert [part.heading for part in split_parts(f"# A\n\n{body}\n", is_markdown=True)] == ["A"]


def test_a_part_begins_with_its_first_line_that_is_not_blank() -> None:
    (part,) = split_parts("\n\nHello\n", is_markdown=True)
    assert (part.line, part.start, part.text) == (3, 2, "Hello\n")
