"""The guide names what is offered, and nothing else."""

import re

from everkept.families.bank.guidance_tools import render_instructions
from everkept.families.bank.model import CORE_FILES, DEFAULT_MODE, MODES

OFFERED = {
    "track_progress": "Add a line to the progress file.\nMore about it.",
    "log_decision": "Keep a decision | with reasons.",
    "get_context_digest": "Where the work stands.",
}


def test_only_tools_that_are_offered_are_named() -> None:
    text = render_instructions(OFFERED.items())
    tools = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text))
    assert tools == set(OFFERED)


def test_a_moment_without_tools_is_left_out() -> None:
    text = render_instructions(OFFERED.items())
    assert "## At the start" in text
    assert "## During the work" in text
    assert "## At the end" not in text


def test_core_files_and_modes_are_explained() -> None:
    text = render_instructions({}.items())
    for name in (*CORE_FILES, *MODES):
        assert f"- `{name}`: " in text
    assert f"- `{DEFAULT_MODE}`: " in text.partition("(the default)")[0].splitlines()[-1]


def test_each_tool_has_one_row_with_its_first_line() -> None:
    rows = [line for line in render_instructions(OFFERED.items()).splitlines() if line.startswith("| `")]
    assert rows == [
        "| `track_progress` | Add a line to the progress file. |",
        "| `log_decision` | Keep a decision \\| with reasons. |",
        "| `get_context_digest` | Where the work stands. |",
    ]
