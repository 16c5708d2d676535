import pytest

from everkept.core.times import parse_time
from everkept.families.bank.bank_entries import (
    CATEGORY_SIGNS,
    ENTRY_TYPE_LABELS,
    Category,
    Decision,
    EntryType,
    ProgressEntry,
    Status,
    WorkItem,
    build_entry_id,
    format_clock_time,
    format_decision_block,
    format_long_date,
    format_note_line,
    format_numbered_decision,
    format_progress_block,
    format_progress_line,
    format_session_note,
    format_user,
)
from everkept.families.bank.markdown_sections import list_items, list_sections

AT = parse_time("2026-02-13T10:30:00Z")


def test_a_line_of_progress() -> None:
    work = WorkItem("Feature Implementation", "Implemented user authentication module")
    assert format_progress_line(AT, "Alice", work) == (
        "- [2026-02-13 10:30:00] [Alice] - Feature Implementation: Implemented user authentication module"
    )
    assert format_note_line(AT, "Alice", work) == (
        "- [10:30:00] [Alice] Feature Implementation: Implemented user authentication module"
    )


@pytest.mark.parametrize(
    ("filename", "status", "end"),
    [
        ("a.py", "success", " (file: a.py, status: success)"),
        ("a.py", None, " (file: a.py)"),
        (None, "error", " (status: error)"),
        (" ", None, ""),
    ],
)
def test_file_and_status_stand_behind_the_text(filename: str | None, status: Status | None, end: str) -> None:
    work = WorkItem("A", "text", filename, status)
    assert format_progress_line(AT, "Alice", work).endswith(f"- A: text{end}")
    assert format_note_line(AT, "Alice", work).endswith(f"A: text{end}")


def test_further_lines_are_indented_below_the_first() -> None:
    work = WorkItem("A\n## B", "one\n## two\n\n```\n- code", "x.md")
    line = format_progress_line(AT, "Al\nice", work)
    assert line.splitlines() == [
        "- [2026-02-13 10:30:00] [Al ice] - A ## B: one (file: x.md)",
        "  ## two",
        "",
        "  ```",
        "  - code",
    ]
    assert len(list_items(f"{line}\n- next")) == 2
    assert [part.title for part in list_sections(f"{line}\n## After\n")] == ["After"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Alice", "Alice"),
        ("https://github.com/alice", "[@alice](https://github.com/alice)"),
        ("https://github.com/alice/", "[@alice](https://github.com/alice/)"),
        ("http://www.github.com/alice", "[@alice](http://www.github.com/alice)"),
        ("https://github.com/", "https://github.com/"),
        ("http://github.com/ada/repo", "http://github.com/ada/repo"),
        (" \n", "Unknown User"),
        ("https://notgithub.com/alice", "https://notgithub.com/alice"),
        ("https://example.com/github.com/alice", "https://example.com/github.com/alice"),
    ],
)
def test_the_address_of_a_profile_becomes_a_link(name: str, shown: str) -> None:
    assert format_user(name) == shown


@pytest.mark.parametrize(
    ("time", "shown"), [("00:05", "12:05 AM"), ("09:00", "9:00 AM"), ("12:00", "12:00 PM"), ("23:59", "11:59 PM")]
)
def test_hours_are_those_of_a_clock(time: str, shown: str) -> None:
    at = parse_time(f"2026-12-01T{time}:00Z")
    assert format_clock_time(at) == shown
    assert format_long_date(at) == f"Dec 1, 2026, {shown}"


def test_notes_carry_the_sign_of_their_kind() -> None:
    assert format_session_note(AT, "Alice", "text") == "- [10:30 AM] [Alice] text"
    signs: dict[Category, str] = {
        "observation": "\N{EYES}",
        "blocker": "\N{CONSTRUCTION SIGN}",
        "question": "\N{BLACK QUESTION MARK ORNAMENT}",
        "decision": "\N{WHITE HEAVY CHECK MARK}",
        "todo": "\N{CLIPBOARD}",
        "other": "\N{MEMO}",
    }
    assert signs == CATEGORY_SIGNS
    assert (
        format_session_note(AT, "Alice", "text", CATEGORY_SIGNS["blocker"])
        == "- [10:30 AM] [Alice] \N{CONSTRUCTION SIGN} text"
    )


def test_entries_carry_the_label_of_their_kind() -> None:
    labels: dict[EntryType, str] = {
        "feature": "\N{SPARKLES} Feature",
        "fix": "\N{BUG} Fix",
        "refactor": "\N{BLACK UNIVERSAL RECYCLING SYMBOL}\ufe0f Refactor",
        "docs": "\N{BOOKS} Docs",
        "test": "\N{TEST TUBE} Test",
        "chore": "\N{WRENCH} Chore",
        "other": "\N{MEMO} Other",
    }
    assert labels == ENTRY_TYPE_LABELS


def test_a_block_of_progress() -> None:
    entry = ProgressEntry("feature", "Login", "Some text.", ["a.py", "b`c.py"], ["auth", "web"])
    assert format_progress_block(AT, "Alice", "p_2026-02-13_x", entry) == (
        "### [Feb 13, 2026, 10:30 AM] [Alice] \N{SPARKLES} Feature: Login\n"
        "<!-- ID: p_2026-02-13_x -->\n\n"
        "Some text.\n\n"
        "**Affected files:**\n- `a.py`\n- `` b`c.py ``\n\n"
        "**Tags:** `auth`, `web`\n\n"
        "---"
    )
    bare = format_progress_block(AT, "Alice", "p_2026-02-13_x", ProgressEntry("fix", "Typo"))
    assert bare.splitlines()[1:] == ["<!-- ID: p_2026-02-13_x -->", "", "---"]


def test_details_cannot_break_out_of_their_entry() -> None:
    entry = ProgressEntry("fix", "S\n## T", "## Heading\n\nUnder\n---\n\n```\nopen", ["f\n## g"])
    block = format_progress_block(AT, "Alice", "p_x", entry)
    assert [part.level for part in list_sections(block)] == [3]
    assert [part.title for part in list_sections(f"{block}\n\n## After\n")][-1] == "After"


def test_ids_are_the_milliseconds_and_never_taken() -> None:
    first = build_entry_id(AT)
    assert first == f"p_2026-02-13_{_base36(AT // 1000)}"
    second = build_entry_id(AT, f"### x\n<!-- ID: {first} -->\n")
    assert second == f"p_2026-02-13_{_base36(AT // 1000 + 1)}"


def test_a_decision() -> None:
    decision = Decision("Use SQLite", "We need storage.", "SQLite it is.", ["Files", "Postgres"])
    assert format_decision_block(AT, "Alice", decision) == (
        "## Use SQLite\n"
        "- **Date:** 2026-02-13 10:30:00\n"
        "- **Author:** Alice\n"
        "- **Context:** We need storage.\n"
        "- **Decision:** SQLite it is.\n"
        "- **Alternatives Considered:** \n  - Files\n  - Postgres\n"
        "- **Consequences:** \n  - None"
    )


def test_a_decision_of_several_lines_stays_one() -> None:
    decision = Decision("T\nU", "one\n## two", "d\n\n- x", ["a\n## b"])
    block = format_decision_block(AT, "Alice", decision)
    assert [part.title for part in list_sections(block)] == ["T U"]
    assert len(list_items(block)) == 6


def test_a_decision_of_a_thinking_session() -> None:
    decision = Decision("T", "c", "d", ["a"])
    assert format_numbered_decision(AT, 3, decision) == (
        "## 3. T\n- **Date:** 2026-02-13\n- **Context:** c\n- **Decision:** d\n- **Alternatives:**\n  - a"
    )


def _base36(number: int) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    return (_base36(number // 36) if number >= 36 else "") + digits[number % 36]
