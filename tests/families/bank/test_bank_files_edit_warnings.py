"""Edits say what is wrong with the file that they were made to."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.errors import Refused
from everkept.families.bank.bank_files import find_edit_warnings
from everkept.families.bank.progress_tools import ProgressTools
from memory_bank import Banking, bank_in

OPEN = "# C\n\n## Notes\n\n```js\ncode\n\n## Known Issues\n\n- i\n"


@pytest.fixture
async def bank(tmp_path: Path) -> AsyncIterator[Banking]:
    async with bank_in(tmp_path) as bank:
        bank.offer(ProgressTools(bank.banks, bank.clock))
        yield bank


async def test_an_open_fence_is_warned_about_and_left_as_it_is(bank: Banking) -> None:
    bank.put("active-context.md", OPEN)
    for issues in (["j"], ["j", "k"]):
        answer = await bank("update_active_context", issues=issues)
        assert [warning["code"] for warning in answer["warnings"]] == ["left_open"]
        assert "a code fence is open from line 5" in answer["warnings"][0]["message"]
    assert bank.get("active-context.md") == OPEN.replace("- i\n", "- j\n- k\n")


async def test_an_edit_that_would_end_an_open_fence_by_chance_is_refused(bank: Banking) -> None:
    bank.put("active-context.md", OPEN)
    with pytest.raises(Refused) as caught:
        await bank("update_active_context", issues=["see\n```"])
    assert "open from line 5" in str(caught.value)
    assert bank.get("active-context.md") == OPEN


async def test_every_tool_that_edits_says_so(bank: Banking) -> None:
    bank.put("active-context.md", OPEN)
    bank.put("progress.md", OPEN)
    bank.put("decision-log.md", OPEN)
    calls = {
        "track_progress": {"action": "A", "description": "d"},
        "add_progress_entry": {"type": "fix", "summary": "s"},
        "add_session_note": {"note": "n"},
        "update_tasks": {"add": ["a"]},
        "log_decision": {"title": "T", "context": "c", "decision": "d"},
    }
    for tool, arguments in calls.items():
        answer = await bank(tool, **arguments)
        assert {warning["code"] for warning in answer["warnings"]} == {"left_open"}, tool


def test_a_sound_file_gives_no_warning() -> None:
    assert find_edit_warnings({"a.md": "# A\n\n```\n## b\n```\n"}) == []
