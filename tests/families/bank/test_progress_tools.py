from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from assistant import Time
from everkept.app.bank import read_git_user
from everkept.core.sessions import Account, act_as
from everkept.core.times import parse_time
from everkept.errors import BankNotFound, EverkeptError, InvalidInput, NotFound
from everkept.families.bank.model import BankOptions
from everkept.families.bank.progress_tools import ProgressTools
from memory_bank import Banking, bank_in

SECOND = 1_000_000
AT = parse_time("2026-02-13T10:30:00Z")
CONTEXT = (
    "# Current Context\n\n## Ongoing Tasks\n\n- [Task 1]\n\n## Known Issues\n\n- [Issue 1]\n\n"
    "## Next Steps\n\n- [Step 1]\n\n## Current Session Notes\n\n- [Note 1]\n"
)
PROGRESS = "# Project Progress\n\n## Completed Milestones\n\n- one\n\n## Update History\n\n- old\n"
DECISIONS = "# Decision Log\n\n## First\n- **Date:** 2026-01-01\n"


@pytest.fixture
async def bank(tmp_path: Path) -> AsyncGenerator[Banking, None]:
    options = BankOptions(place=str(tmp_path), username="Alice")
    async with bank_in(tmp_path, options=options) as banking:
        banking.offer(ProgressTools(banking.banks, Time(AT - SECOND)))
        yield banking


@pytest.fixture
def filled(bank: Banking) -> Banking:
    bank.put("active-context.md", CONTEXT)
    bank.put("progress.md", PROGRESS)
    bank.put("decision-log.md", DECISIONS)
    return bank


async def test_progress_is_a_line_in_the_history_and_among_the_notes(filled: Banking) -> None:
    text = await filled.text(
        "track_progress", action="Feature Implementation", description="Implemented user authentication module"
    )
    assert text == (
        "Progress tracked successfully. Updated progress.md with entry: [2026-02-13 10:30:00] "
        "[Alice] - Feature Implementation: Implemented user authentication module"
    )
    assert filled.get("progress.md") == PROGRESS.replace(
        "- old",
        "- [2026-02-13 10:30:00] [Alice] - Feature Implementation: Implemented user authentication module\n- old",
    )
    assert filled.get("active-context.md") == CONTEXT.replace(
        "- [Note 1]", "- [10:30:00] [Alice] Feature Implementation: Implemented user authentication module\n- [Note 1]"
    )


async def test_progress_without_a_note_leaves_the_context_alone(filled: Banking) -> None:
    tracked = await filled("track_progress", action="A", description="d", updateActiveContext=False, status="error")
    assert tracked["entry"] == "- [2026-02-13 10:30:00] [Alice] - A: d (status: error)"
    assert tracked["files"] == ["progress.md"]
    assert filled.get("active-context.md") == CONTEXT


async def test_missing_files_are_made(bank: Banking) -> None:
    await bank("track_progress", action="A", description="d")
    await bank("log_decision", title="T", context="c", decision="d")
    assert bank.get("progress.md").startswith("# Progress\n\n## Update History\n\n- [2026")
    assert bank.get("active-context.md") == (
        "# Current Context\n\n## Current Session Notes\n\n"
        "- [10:30:01] [Alice] Decision Made: T\n- [10:30:00] [Alice] A: d\n"
    )
    assert bank.get("decision-log.md").startswith("# Decision Log\n\n## T\n- **Date:** 2026-02-13")


async def test_an_entry_with_details_is_put_under_the_history(filled: Banking) -> None:
    added = await filled("add_progress_entry", type="fix", summary="Typo", details="Text", files=["a"], tags=["t"])
    assert added["success"] is True
    assert added["type"] == "fix"
    assert added["summary"] == "Typo"
    assert added["timestamp"] == "2026-02-13T10:30:00.000Z"
    assert filled.get("progress.md") == PROGRESS.replace(
        "- old",
        "### [Feb 13, 2026, 10:30 AM] [Alice] \N{BUG} Fix: Typo\n"
        f"<!-- ID: {added['entryId']} -->\n\nText\n\n"
        "**Affected files:**\n- `a`\n\n**Tags:** `t`\n\n---\n\n- old",
    )


async def test_lists_of_the_context_are_replaced_and_cleared(filled: Banking) -> None:
    answer = await filled.result("update_active_context", tasks=["a", "b"], nextSteps=[])
    assert answer.text == "Active context updated successfully"
    assert answer.facts["updated"] == ["Ongoing Tasks", "Next Steps"]
    expected = CONTEXT.replace("- [Task 1]", "- a\n- b").replace("\n- [Step 1]\n", "")
    assert filled.get("active-context.md") == expected


async def test_a_note_goes_to_the_top_of_whichever_heading_there_is(filled: Banking) -> None:
    added = await filled("add_session_note", note="Slow", category="blocker")
    assert added == {
        "success": True,
        "message": "Session note added",
        "timestamp": "2026-02-13T10:30:00.000Z",
        "category": "blocker",
    }
    line = "- [10:30 AM] [Alice] \N{CONSTRUCTION SIGN} Slow\n"
    assert filled.get("active-context.md") == CONTEXT.replace("- [Note 1]", line + "- [Note 1]")
    filled.put("active-context.md", "## Session Notes\n\n- x\n\n## Current Session Notes\n\n- y\n")
    assert (await filled("add_session_note", note="n"))["category"] == "none"
    assert filled.get("active-context.md").startswith("## Session Notes\n\n- [10:30 AM] [Alice] n\n- x\n")


async def test_a_note_makes_its_heading_where_there_is_none(bank: Banking) -> None:
    bank.put("active-context.md", "# Mine\r\n\r\nText without end")
    await bank("add_session_note", note="n")
    assert bank.get("active-context.md") == (
        "# Mine\r\n\r\nText without end\r\n\r\n## Session Notes\r\n\r\n- [10:30 AM] [Alice] n"
    )


async def test_tasks_are_added_and_removed_and_counted_as_it_happened(filled: Banking) -> None:
    added = await filled("update_tasks", add=["Write docs", "WRITE docs", "Ship"])
    assert added["message"] == "Tasks updated"
    assert added["tasks"] == ["Write docs", "Ship"]
    assert added["changes"] == {"added": 2, "removed": 0, "replaced": False}
    removed = await filled("update_tasks", remove=["DOCS", "unknown"], add=["Rest"])
    assert removed["tasks"] == ["Ship", "Rest"]
    assert removed["changes"] == {"added": 1, "removed": 1, "replaced": False}
    assert [warned["code"] for warned in removed["warnings"]] == ["task_not_found"]


async def test_a_list_that_is_right_already_is_said_to_be(filled: Banking) -> None:
    await filled("update_tasks", replace=["a"])
    again = await filled("update_tasks", add=["A"])
    assert again["message"].endswith("Nothing changed.")
    assert again["changes"] == {"added": 0, "removed": 0, "replaced": False}


async def test_removing_what_is_not_there_is_an_error(filled: Banking) -> None:
    with pytest.raises(NotFound):
        await filled("update_tasks", remove=["unknown"])
    assert filled.get("active-context.md") == CONTEXT


async def test_a_decision_is_logged_with_a_line_of_progress(filled: Banking) -> None:
    answer = await filled.result(
        "log_decision",
        title="Use SQLite",
        context="Storage",
        decision="SQLite",
        alternatives="Files",
        consequences=["Fast", "One file"],
    )
    assert answer.text == "Decision logged: Use SQLite"
    assert filled.get("decision-log.md") == DECISIONS + (
        "\n## Use SQLite\n- **Date:** 2026-02-13 10:30:00\n- **Author:** Alice\n"
        "- **Context:** Storage\n- **Decision:** SQLite\n"
        "- **Alternatives Considered:** \n  - Files\n"
        "- **Consequences:** \n  - Fast\n  - One file\n"
    )
    line = "- [2026-02-13 10:30:00] [Alice] - Decision Made: Use SQLite\n"
    assert filled.get("progress.md") == PROGRESS.replace("- old", line + "- old")
    assert "- [10:30:00] [Alice] Decision Made: Use SQLite\n" in filled.get("active-context.md")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("update_active_context", {}),
        ("update_tasks", {}),
        ("update_tasks", {"add": [], "remove": []}),
        ("update_tasks", {"remove": [" "]}),
        ("track_progress", {"action": " ", "description": "d"}),
        ("track_progress", {"action": "a", "description": "d\x1b[2J"}),
        ("track_progress", {"action": "a", "description": "d", "status": "maybe"}),
        ("add_progress_entry", {"type": "magic", "summary": "s"}),
        ("add_session_note", {"note": ""}),
        ("log_decision", {"title": "t", "context": "c", "decision": ""}),
    ],
)
async def test_bad_input_changes_nothing(filled: Banking, tool: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        await filled(tool, **arguments)
    assert filled.get("active-context.md") == CONTEXT
    assert filled.get("progress.md") == PROGRESS
    assert filled.get("decision-log.md") == DECISIONS


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("track_progress", {"action": "a", "description": "d"}),
        ("update_tasks", {"add": ["x"]}),
        ("log_decision", {"title": "t", "context": "c", "decision": "d"}),
    ],
)
async def test_without_a_bank_nothing_is_made(tmp_path: Path, tool: str, arguments: dict[str, Any]) -> None:
    async with bank_in(tmp_path, made=False) as banking:
        banking.offer(ProgressTools(banking.banks, banking.clock))
        with pytest.raises(BankNotFound) as raised:
            await banking(tool, **arguments)
        assert raised.value.facts["expectedPath"] == str(tmp_path / "memory-bank")
        with pytest.raises(EverkeptError):
            await banking(tool, storeId="unknown", **arguments)
        assert not banking.folder.exists()


async def test_a_secret_is_written_as_given_with_a_warning(filled: Banking) -> None:
    secret = "password=hunter2hunter2"
    answer = await filled.result("track_progress", action="a", description=secret)
    assert [warned["code"] for warned in answer.facts["warnings"]] == ["secret_in_file"]
    assert "Warning:" in answer.text
    assert secret in filled.get("progress.md")
    noted = await filled("add_session_note", note=secret)
    assert secret not in noted["warnings"][0]["message"]


async def test_a_file_with_its_old_name_is_edited_under_the_new_one(bank: Banking) -> None:
    bank.put("activeContext.md", CONTEXT)
    await bank("update_tasks", add=["a"])
    assert bank.names() == ["active-context.md"]
    assert bank.get("active-context.md") == CONTEXT.replace("[Task 1]", "a")


async def test_bytes_that_are_no_text_survive_an_edit(bank: Banking) -> None:
    begin = b"\xef\xbb\xbf# P\r\n\xff\xfe\r\n\r\n## Update History\r\n\r\n"
    bank.put("progress.md", begin + b"- old\r\n")
    await bank("track_progress", action="a", description="d", updateActiveContext=False)
    assert (bank.folder / "progress.md").read_bytes() == (
        begin + b"- [2026-02-13 10:30:00] [Alice] - a: d\r\n- old\r\n"
    )


async def test_a_profile_as_the_name_of_the_user_becomes_a_link(tmp_path: Path) -> None:
    options = BankOptions(place=str(tmp_path), username="https://github.com/alice")
    async with bank_in(tmp_path, options=options) as banking:
        banking.offer(ProgressTools(banking.banks, Time(AT - SECOND)))
        tracked = await banking("track_progress", action="a", description="d")
    link = "[@alice](https://github.com/alice)"
    assert tracked["entry"] == f"- [2026-02-13 10:30:00] [{link}] - a: d"


async def test_entries_that_are_added_at_once_are_all_kept(filled: Banking) -> None:
    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(partial(filled, "add_progress_entry", type="chore", summary=f"number {number}."))
            group.start_soon(partial(filled, "update_tasks", add=[f"number {number}."]))
    for number in range(10):
        assert filled.get("progress.md").count(f"number {number}.") == 1
        assert filled.get("active-context.md").count(f"number {number}.") == 1


async def test_of_a_very_long_list_the_ends_are_shown_and_the_rest_counted(bank: Banking) -> None:
    tasks = "".join(f"- Task {n}\n" for n in range(20_000))
    bank.put("active-context.md", f"# C\n\n## Ongoing Tasks\n\n{tasks}")
    answer = await bank("update_tasks", add=["new"], remove=["task 19998"])
    assert answer["tasks"][:2] == ["Task 0", "Task 1"]
    assert answer["tasks"][-2:] == ["Task 19999", "new"]
    assert len(answer["tasks"]) == 200
    assert answer["omitted"] == 20_000 - 200
    assert answer["changes"] == {"added": 1, "removed": 1, "replaced": False}


async def test_a_name_that_is_blank_is_no_name(tmp_path: Path) -> None:
    options = BankOptions(place=str(tmp_path), username=" ")
    async with bank_in(tmp_path, options=options) as bank:
        bank.offer(ProgressTools(bank.banks, Time(AT - SECOND)))
        answer = await bank("track_progress", action="A", description="d")
        assert answer["entry"] == "- [2026-02-13 10:30:00] [Unknown User] - A: d"


async def test_a_context_that_cannot_be_updated_says_what_was_attempted(bank: Banking) -> None:
    bank.put("active-context.md", b"a\0b")
    with pytest.raises(EverkeptError) as caught:
        await bank("update_active_context", tasks=["x"])
    assert str(caught.value).startswith("Error updating active context: active-context.md was not")
    assert str(caught.value).count("Error updating") == 1


async def test_a_file_of_fifty_megabytes_takes_one_more_line(bank: Banking) -> None:
    text = "# Progress\n\n## Update History\n\n" + f"- {'x' * 9_997}\n" * 5_000
    bank.put("progress.md", text)
    await bank("track_progress", action="Work", description="done")
    after = bank.get("progress.md")
    assert len(after) > len(text) > 50_000_000
    assert "] - Work: done\n- xxx" in after[:200]


async def test_git_names_the_author_if_no_one_else_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text("[user]\n\tname = Grace\n", encoding="utf-8")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "git"))
    options = BankOptions(place=str(tmp_path), read_author=partial(read_git_user, str(tmp_path)))
    async with bank_in(tmp_path, options=options) as bank:
        bank.offer(ProgressTools(bank.banks, Time(AT - SECOND)))
        await bank("add_session_note", note="n")
        await bank("add_progress_entry", type="fix", summary="s")
        with act_as(Account("ada")):
            await bank("track_progress", action="a", description="d")
        assert "- [10:30 AM] [Grace] n\n" in bank.get("active-context.md")
        assert "[Grace]" in bank.get("progress.md")
        assert "[ada] - a: d" in bank.get("progress.md")
