"""The core files in one answer, whole and in short, as a client sees them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.core.context_text import count_tokens
from everkept.errors import InvalidInput, NotFound, Unavailable
from everkept.families.bank.bank_files import compute_etag
from everkept.families.bank.banks import Bank
from everkept.families.bank.core_files import ensure_core_files
from everkept.families.bank.file_tools import FileTools
from everkept.families.bank.model import CORE_FILES
from memory_bank import Banking, bank_in


async def no_graph(_: Bank) -> str | None:
    return None


@pytest.fixture
async def bank(tmp_path: Path) -> AsyncIterator[Banking]:
    async with bank_in(tmp_path) as bank:
        bank.offer(FileTools(bank.banks, bank.records, bank.clock, no_graph))
        await ensure_core_files(bank.bank)
        yield bank


async def test_the_bundle_holds_every_core_file(bank: Banking) -> None:
    answer = await bank("get_context_bundle")
    assert set(answer["bundle"]) == set(CORE_FILES)
    assert answer["bundle"]["progress.md"] == {
        "content": bank.get("progress.md"),
        "etag": compute_etag(bank.get("progress.md").encode()),
    }
    metadata = answer["metadata"]
    assert (metadata["filesLoaded"], metadata["totalFiles"], metadata["warnings"]) == (5, 5, [])
    assert metadata["memoryBankDir"] == str(bank.folder)
    assert metadata["timestamp"].endswith("Z")
    without = await bank("get_context_bundle", includeEtags=False)
    assert list(without["bundle"]["progress.md"]) == ["content"]


async def test_missing_files_are_named_in_the_bundle(bank: Banking) -> None:
    (bank.folder / "progress.md").unlink()
    answer = await bank("get_context_bundle")
    assert "progress.md" not in answer["bundle"]
    assert answer["metadata"]["warnings"] == ["progress.md is missing."]
    for path in bank.folder.glob("*.md"):
        path.unlink()
    with pytest.raises(NotFound) as caught:
        await bank("get_context_bundle")
    assert str(caught.value).startswith("No Memory Bank files found. Errors: ")


@pytest.mark.parametrize("budget", [320, 400, 800])
@pytest.mark.parametrize("tool", ["get_context_bundle", "get_context_digest"])
async def test_an_answer_stays_inside_its_budget(bank: Banking, tool: str, budget: int) -> None:
    for name in CORE_FILES:
        bank.put(name, bank.get(name) + "- [ ] One thing that is open\n" * 40)
    result = await bank.result(tool, maxTokens=budget)
    assert count_tokens(result.text) <= budget
    if tool == "get_context_bundle":
        shown = result.facts["bundle"]
        # Who wrote a cut file back with its tag would lose the rest.
        assert all(("etag" in file) == (file["content"] == bank.get(n)) for n, file in shown.items())
        assert result.facts["metadata"]["warnings"]
    with pytest.raises(InvalidInput):
        await bank(tool, maxTokens=10)


async def test_the_digest_has_the_shape_that_clients_expect(bank: Banking) -> None:
    bank.put("active-context.md", "# C\n\n## Ongoing Tasks\n\n- Write\n\n## Known Issues\n")
    bank.put("progress.md", "## Update History\n\n- [2026-02-13 10:30:00] [Ada] - Fix: Typo\n")
    bank.put("decision-log.md", "## Use it\n\n- **Date:** 2026-02-13\n- **Decision:** Yes.\n")
    bank.put("system-patterns.md", "# Patterns\n\n- Ports\n")

    async def summary(_: Bank) -> str:
        return "2 entities"

    bank.offer(FileTools(bank.banks, bank.records, bank.clock, summary))
    answer = await bank("get_context_digest", includeSystemPatterns=True)
    assert answer["digest"] == {
        "currentContext": {"tasks": ["Write"], "issues": [], "nextSteps": []},
        "recentProgress": ["[2026-02-13 10:30:00] [Ada] - Fix: Typo"],
        "recentDecisions": [{"title": "Use it", "date": "2026-02-13", "summary": "Yes."}],
        "systemPatterns": "# Patterns\n\n- Ports",
        "graphSummary": "2 entities",
    }
    assert list(answer["metadata"]) == ["timestamp", "memoryBankDir"]


async def test_the_digest_says_how_many_more_there_are(bank: Banking) -> None:
    bank.put("active-context.md", "## Ongoing Tasks\n\n" + "- A task\n" * 20_000)
    answer = await bank("get_context_digest")
    assert len(answer["digest"]["currentContext"]["tasks"]) == 50
    # Of a file that is very long both ends are read.
    assert answer["metadata"]["warnings"][0].startswith("tasks shows 50 of ")


async def test_a_graph_that_cannot_be_read_does_not_stop_the_digest(bank: Banking) -> None:
    async def fails(_: Bank) -> str | None:
        raise Unavailable("The disk is gone.")

    bank.offer(FileTools(bank.banks, bank.records, bank.clock, fails))
    answer = await bank("get_context_digest")
    assert "The disk is gone." in answer["metadata"]["warnings"][0]


async def test_files_of_fifty_megabytes_have_a_digest(bank: Banking) -> None:
    line = f"- [2026-01-01 10:00:00] [A] - Work: {'x' * 9_963}\n"
    text = "# P\n\n## Update History\n\n- [2026-02-01 10:00:00] [A] - Work: last\n" + line * 5_000
    assert len(text) > 49_000_000
    for name in ("progress.md", "system-patterns.md"):
        bank.put(name, text)
    found = await bank("get_context_digest", includeSystemPatterns=True, maxTokens=2_000)
    assert found["digest"]["recentProgress"][0].endswith("Work: last")
