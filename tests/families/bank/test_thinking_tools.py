from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from assistant import Time
from everkept.core.sessions import Session
from everkept.core.times import parse_time
from everkept.errors import BankNotFound, InvalidInput, NotFound
from everkept.families.bank.thinking_tools import ThinkingTools
from memory_bank import Banking, bank_in

AT = parse_time("2026-02-13T10:30:00Z")
STEP: dict[str, Any] = {"thought": "Hm.", "nextThoughtNeeded": True, "thoughtNumber": 1, "totalThoughts": 3}


@pytest.fixture
async def bank(tmp_path: Path) -> AsyncGenerator[Banking, None]:
    async with bank_in(tmp_path) as banking:
        banking.offer(ThinkingTools(banking.banks, Time(AT - 1_000_000)))
        yield banking


async def test_a_step_is_counted_and_never_told(bank: Banking) -> None:
    assert await bank("sequential_thinking", **STEP) == {
        "thoughtNumber": 1,
        "totalThoughts": 3,
        "nextThoughtNeeded": True,
        "branches": [],
        "thoughtHistoryLength": 1,
    }
    second = await bank("sequential_thinking", **STEP | {"thoughtNumber": 5, "branchFromThought": 1, "branchId": "b"})
    assert second["totalThoughts"] == 5
    assert second["branches"] == ["b"]
    assert second["thoughtHistoryLength"] == 2


async def test_a_total_can_be_raised(bank: Banking) -> None:
    more = STEP | {"thoughtNumber": 3, "needsMoreThoughts": True}
    assert (await bank("sequential_thinking", **more))["totalThoughts"] == 4


async def test_starting_over_clears_one_or_all(bank: Banking) -> None:
    await bank("sequential_thinking", **STEP)
    await bank("sequential_thinking", **STEP, sessionId="a")
    assert await bank("sequential_thinking", reset=True, sessionId="a") == {
        "reset": True,
        "cleared": 1,
        "sessionId": "a",
    }
    assert await bank("sequential_thinking", reset=True) == {"reset": True, "cleared": 1}
    assert (await bank("sequential_thinking", **STEP))["thoughtHistoryLength"] == 1


@pytest.mark.parametrize("missing", list(STEP))
async def test_a_step_needs_all_its_parts(bank: Banking, missing: str) -> None:
    with pytest.raises(InvalidInput, match=missing):
        await bank("sequential_thinking", **{k: v for k, v in STEP.items() if k != missing})
    with pytest.raises(InvalidInput):
        await bank("sequential_thinking", **STEP, isRevision=True)


async def test_a_connection_without_state_says_that_it_counts_nothing(tmp_path: Path) -> None:
    async with bank_in(tmp_path, session=Session(stateful=False)) as banking:
        banking.offer(ThinkingTools(banking.banks, banking.clock))
        assert "connection is stateless" in (await banking("sequential_thinking", **STEP))["note"]


async def test_what_came_out_of_it_is_written_to_the_files(bank: Banking) -> None:
    bank.put("active-context.md", "## Next Steps\n- [Step 1]\n\n## Tasks\n- old\n- done\n")
    bank.put("decision-log.md", "# Decision Log\n\n## 2. Earlier\n- **Date:** 2026-01-01\n")
    answer = await bank(
        "finalize_thinking_session",
        summary="We know.\nMore.",
        decision={"title": "T", "context": "c", "decision": "d", "consequences": ["x"]},
        tasks={"add": ["new"], "remove": ["done"]},
        nextSteps=["go"],
        progressEntry={"type": "docs", "summary": "s"},
        sessionId="a",
    )
    assert answer == {
        "success": True,
        "actions": [
            "Session note added to active-context.md",
            "Next steps updated (1 item)",
            "Tasks updated (1 added, 1 removed)",
            "Decision logged: T",
            "Progress entry added: s",
        ],
        "timestamp": "2026-02-13T10:30:00.000Z",
        "sessionId": "a",
    }
    assert bank.get("active-context.md") == (
        "## Next Steps\n- go\n\n## Ongoing Tasks\n- old\n- new\n\n"
        "## Session Notes\n\n- [10:30 AM] [Unknown User] \N{BRAIN} We know. [session:a]\n  More.\n"
    )
    assert bank.get("decision-log.md").endswith(
        "\n\n## 3. T\n- **Date:** 2026-02-13\n- **Context:** c\n- **Decision:** d\n- **Consequences:**\n  - x\n"
    )
    assert "\N{BOOKS} Docs: s" in bank.get("progress.md")


async def test_a_summary_alone_is_a_note(bank: Banking) -> None:
    answer = await bank("finalize_thinking_session", summary="password=hunter2hunter2")
    assert answer["actions"] == ["Session note added to active-context.md"]
    assert [warned["code"] for warned in answer["warnings"]] == ["secret_in_file"]
    assert bank.names() == ["active-context.md"]


async def test_what_fails_in_part_writes_nothing(bank: Banking) -> None:
    with pytest.raises(NotFound):
        await bank(
            "finalize_thinking_session",
            summary="s",
            tasks={"remove": ["unknown"]},
            progressEntry={"type": "docs", "summary": "s"},
        )
    assert bank.names() == []


async def test_without_a_bank_nothing_is_made(tmp_path: Path) -> None:
    async with bank_in(tmp_path, made=False) as banking:
        banking.offer(ThinkingTools(banking.banks, banking.clock))
        with pytest.raises(BankNotFound):
            await banking("finalize_thinking_session", summary="s")
        assert not banking.folder.exists()
