"""How new core files begin, and what in them counts as not written yet."""

import pytest

from everkept.families.bank.core_files import TEMPLATES, is_placeholder
from everkept.families.bank.markdown_sections import list_sections
from everkept.families.bank.model import CORE_FILES


def test_every_core_file_begins_with_the_headings_that_tools_look_for() -> None:
    assert set(TEMPLATES) == set(CORE_FILES)
    headings = {name: [part.title for part in list_sections(text)] for name, text in TEMPLATES.items()}
    assert headings == {
        "product-context.md": [
            "Project Overview",
            "Description",
            "Objectives",
            "Technologies",
            "Architecture",
            "Project Structure",
        ],
        "active-context.md": [
            "Current Context",
            "Ongoing Tasks",
            "Known Issues",
            "Next Steps",
            "Current Session Notes",
        ],
        "progress.md": ["Project Progress", "Completed Milestones", "Pending Milestones", "Update History"],
        "decision-log.md": ["Decision Log", "Decision 1", "Decision 2"],
        "system-patterns.md": ["System Patterns", "Architecture Patterns", "Code Patterns", "Documentation Patterns"],
    }


@pytest.mark.parametrize("text", ["[Task 1]", " [Pattern]: [Where] ", "", "[Date] - [Update]"])
def test_brackets_alone_wait_to_be_written(text: str) -> None:
    assert is_placeholder(text)


@pytest.mark.parametrize("text", ["[a link](https://example.com)", "Fix [x]", "[1] see below"])
def test_words_around_brackets_are_written(text: str) -> None:
    assert not is_placeholder(text)
