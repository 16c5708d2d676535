"""What a bank says in short."""

import pytest

from everkept.families.bank.core_files import (
    TEMPLATES,
    Digest,
    build_digest,
    limit_digest,
    list_recent_decisions,
    list_recent_progress,
    parse_moment,
    shorten_text,
)
from everkept.families.bank.model import PRODUCT

ACTIVE = """\
# Current Context

## Current Project State

The API is in beta.
More about it.

## Ongoing Tasks

- [x] Write the parser
- [ ] Write the printer
- Review the
  documentation

## Tasks

- Old list's task

## Known Issues

The build is slow.

## Next Steps

1. Release
2. [Next step 2]

## Session Notes

- [10:30 AM] 🚧 Waiting for the key
- [10:20 AM] 👀 Saw a deer
- [10:10 AM] 📋 Ask Ada

## Current Session Notes

- [09:00:00] [Ada] Fix: TODO remove the flag

## Ideas of mine

- [ ] Try another font
  - [ ] and a bigger one
- Some idea

```
- [ ] no task, but code
```
"""

PROGRESS = """\
# Project Progress

## Pending Milestones

- [Milestone 2]
- Version 2
- [x] Version 1

## Update History

### [Feb 13, 2026, 10:30 AM] ✨ Feature: Login
<!-- ID: p_2026-02-13_abc -->

Details of it.

**Affected files:**
- `a.py`

---

- [2026-02-14 08:00:00] [Alice] - Fix: Typo
- [2026-02-12 23:00:00] [Bob] - Test: More
- [ ] finish until 2026-05-01
- no entry
"""

DECISIONS = """\
# Decision Log

Our decisions.

## Decision 1

- **Date:** [Date]
- **Context:** [Context]
- **Decision:** [Decision]
- **Alternatives Considered:**
  - [Alternative 1]

## Use SQLite

- **Date:** 2026-02-01 10:00:00
- **Author:** Alice
- **Context:** A file is enough.
- **Decision:** SQLite it is,
  with FTS5.
- **Consequences:**
  - Simple

## 2. Use Python
**Date:** 2026-02-02
**Decision:** Python.
**Alternatives:**
- Go

---

## Drop the cache (2026-02-03)

It was never used.
"""


def digested(**texts: str) -> Digest:
    named = {name.replace("_", "-") + ".md": text for name, text in texts.items()}
    return build_digest(named, most_progress=10, most_decisions=5, with_patterns=True)


def test_the_lists_of_the_current_context_are_read() -> None:
    digest = digested(active_context=ACTIVE)
    assert digest.project_state == "The API is in beta."
    assert digest.current_context.tasks == [
        "[ ] Write the printer",
        "Review the documentation",
        "Old list's task",
        "[x] Write the parser",
    ]
    assert digest.current_context.issues == ["The build is slow."]
    assert digest.current_context.next_steps == ["Release"]


def test_what_is_open_elsewhere_is_named_with_its_file() -> None:
    digest = digested(active_context=ACTIVE, progress=PROGRESS)
    assert digest.also_unfinished == [
        "active-context.md: [10:30 AM] 🚧 Waiting for the key",
        "active-context.md: [10:10 AM] 📋 Ask Ada",
        "active-context.md: [09:00:00] [Ada] Fix: TODO remove the flag",
        "progress.md: Version 2",
        "active-context.md: Try another font",
        "active-context.md: and a bigger one",
        "progress.md: finish until 2026-05-01",
    ]


def test_progress_of_both_formats_is_shown_newest_first() -> None:
    assert list_recent_progress(PROGRESS) == [
        "[2026-02-14 08:00:00] [Alice] - Fix: Typo",
        "[Feb 13, 2026, 10:30 AM] ✨ Feature: Login",
        "[2026-02-12 23:00:00] [Bob] - Test: More",
    ]


def test_of_one_minute_the_upper_entry_is_the_newer_in_either_format() -> None:
    heading = "### [Feb 14, 2026, 8:00 AM] ✨ Feature: third"
    text = f"## Update History\n\n{heading}\n\n---\n\n- [2026-02-14 08:00:40] second\n"
    assert list_recent_progress(text + "- [2026-02-14 08:00:50] first\n") == [
        heading.removeprefix("### "),
        "[2026-02-14 08:00:40] second",
        "[2026-02-14 08:00:50] first",
    ]


def test_items_below_an_item_are_told_apart() -> None:
    text = (
        "## Ongoing Tasks\n\n- [x] all done\n  - [x] really\n- [x] parent\n  with a line\n"
        "  * [x] child done\n  * [ ] child two\n    of two lines\n- Steps:\n  1. one\n  2. two\n"
        "- wrapped\nby hand\n"
    )
    assert digested(active_context=text).current_context.tasks == [
        "[x] parent with a line; [x] child done; [ ] child two of two lines",
        "Steps: one; two",
        "wrapped by hand",
        "[x] all done; [x] really",
    ]


def test_what_is_open_below_a_milestone_that_is_done_is_unfinished() -> None:
    text = "## Pending Milestones\n\n- [x] Version 1\n  - [ ] notes\n- [x] Version 0\n"
    assert digested(progress=text).also_unfinished == ["progress.md: Version 1; [ ] notes", "progress.md: notes"]


def test_long_lists_are_limited_and_counted() -> None:
    text = "## Ongoing Tasks\n\n" + "".join(f"- t{n}\n" for n in range(70))
    digest, more = limit_digest(digested(active_context=text))
    assert digest.current_context.tasks == [f"t{n}" for n in range(50)]
    assert more == ["tasks shows 50 of 70."]
    assert limit_digest(digested(active_context=ACTIVE)) == (digested(active_context=ACTIVE), [])


def test_of_one_moment_the_upper_entry_is_the_newer() -> None:
    text = "## Update History\n\n- [2026-02-14] second\n- [2026-02-14] first\n"
    assert list_recent_progress(text) == ["[2026-02-14] second", "[2026-02-14] first"]


def test_decisions_are_shown_newest_first_and_templates_are_none() -> None:
    found = list_recent_decisions(DECISIONS)
    assert [(decision.title, decision.date, decision.summary) for decision in found] == [
        ("Drop the cache (2026-02-03)", "2026-02-03", "It was never used."),
        ("2. Use Python", "2026-02-02", "Python."),
        ("Use SQLite", "2026-02-01 10:00:00", "SQLite it is, with FTS5."),
    ]


def test_a_decision_of_a_title_alone_is_one() -> None:
    assert [decision.title for decision in list_recent_decisions("## Use tabs\n")] == ["Use tabs"]


def test_a_new_bank_has_nothing_to_say() -> None:
    digest = build_digest(TEMPLATES, most_progress=10, most_decisions=5, with_patterns=True)
    assert digest.current_context.tasks == []
    assert digest.current_context.issues == []
    assert digest.current_context.next_steps == []
    assert digest.also_unfinished is None
    assert digest.recent_progress == []
    assert digest.recent_decisions == []
    assert digest.system_patterns is None
    assert digest.project_state is None


def test_as_many_entries_are_given_as_are_asked_for() -> None:
    texts = {"progress.md": PROGRESS, "decision-log.md": DECISIONS}
    digest = build_digest(texts, most_progress=1, most_decisions=2, with_patterns=False)
    assert len(digest.recent_progress) == 1
    assert [decision.title for decision in digest.recent_decisions][1] == "2. Use Python"


def test_the_first_lines_of_the_patterns_are_shown() -> None:
    patterns = "".join(f"line {n}\n" for n in range(50))
    assert (digested(system_patterns=patterns).system_patterns or "").count("line") == 20


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_of_other_systems_do_not_matter(end: str) -> None:
    assert digested(active_context=ACTIVE.replace("\n", end)) == digested(active_context=ACTIVE)
    assert list_recent_progress(PROGRESS.replace("\n", end)) == list_recent_progress(PROGRESS)
    assert list_recent_decisions(DECISIONS.replace("\n", end)) == list_recent_decisions(DECISIONS)


@pytest.mark.parametrize("text", ["none", "[Feb 30, 2026, 1:00 AM]", "2026-13-01", "[Foo 1, 2026, 1:00 AM]"])
def test_what_is_no_date_is_no_moment(text: str) -> None:
    assert parse_moment(text) is None


def test_of_a_very_long_file_both_ends_are_read() -> None:
    entries = [f"- [2026-02-14 08:00:00] entry {n}\n" for n in range(40_000)]
    kept = shorten_text("".join(entries))
    assert kept.startswith(entries[0])
    assert kept.endswith(entries[-1])
    assert len(kept) < len("".join(entries)) / 2
    assert list_recent_progress(kept)[0].endswith("entry 0")


NESTED = """\
## Use one database
- **Date:** 2026-02-13
- **Context:** We had two.
  - **Date:** 1999
  - **Decision:** of long ago
- **Decision:** One is enough.
"""


def test_labels_inside_an_item_belong_to_it() -> None:
    (decision,) = list_recent_decisions(NESTED)
    assert decision.date == "2026-02-13"
    assert decision.summary == "One is enough."


@pytest.mark.parametrize("line", ["**Decision:** x", "- **Decision**: x", "* ** Decision : **:  x", "  **decision** x"])
def test_labels_are_read_in_every_form(line: str) -> None:
    (decision,) = list_recent_decisions(f"## A title\n\n**Date:** 2026-01-02\n\n{line}\n")
    assert (decision.date, decision.summary) == ("2026-01-02", "x")


LONG = 100_000
ADVERSE = [
    "- **" + " " * LONG,
    "- **a" + " " * LONG + "x",
    "# a" + " " * LONG + "b",
    "## " + "# " * LONG + "x",
    "- " * LONG + "x",
    "`" * LONG + "x`",
    "- " + "[a]" * LONG + "x",
    "- a\n  - [ ]" + " " * LONG,
    "<!--" + "-->" * LONG + "x",
    "- [" + "2026-01-" * LONG,
]


@pytest.mark.parametrize("line", ADVERSE, ids=range(len(ADVERSE)))
def test_a_long_line_is_read_whatever_it_holds(line: str) -> None:
    text = f"# Title\n\n## Ongoing Tasks\n\n{line}\n\n## Next Steps\n\n- go on\n"
    found = build_digest(dict.fromkeys(TEMPLATES, text), most_progress=10, most_decisions=5, with_patterns=True)
    assert found.current_context.next_steps == ["go on"]


def test_a_long_line_at_the_beginning_is_no_front_matter() -> None:
    text = f"---\n{'a' * LONG}\n---\n\n## Next Steps\n\n- go on\n"
    found = build_digest({"active-context.md": text}, most_progress=1, most_decisions=1, with_patterns=False)
    assert found.current_context.next_steps == ["go on"]


def test_the_digest_begins_with_what_the_project_is() -> None:
    product = TEMPLATES[PRODUCT]
    assert build_digest({PRODUCT: product}, most_progress=1, most_decisions=1, with_patterns=False) == build_digest(
        {}, most_progress=1, most_decisions=1, with_patterns=False
    )
    product = product.replace("[What the project is, and whom it is for]", "A shop\nfor tea.")
    product = product.replace("- [Technology 1]", "- Python").replace("- [Technology 2]", "- SQLite")
    digest = build_digest({PRODUCT: product}, most_progress=1, most_decisions=1, with_patterns=False)
    assert digest.project_overview == "A shop for tea.\nTechnologies: Python; SQLite"
