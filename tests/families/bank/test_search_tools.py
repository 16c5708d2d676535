import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from assistant import PromptIndexing
from bank_search import Searched, searched_in
from everkept.core.files import FileInfo
from everkept.errors import BankNotFound, InvalidInput, NotFound, Refused, Unavailable
from everkept.families.bank.banks import Banks
from everkept.families.bank.model import SECTION_KIND
from everkept.families.bank.search_tools import MAX_SECTIONS
from file_stores import CountingThreads, counted_calls

ACTIVE = "# Current Context\n\n## Ongoing Tasks\n\n- Repair the LOGIN form\n"
PROGRESS = "# Project Progress\n\n## Update History\n\n- [2026-02-13 10:30:00] [Al] - Fix: login\n"


@pytest.fixture
async def searched(tmp_path: Path) -> AsyncIterator[Searched]:
    async with searched_in(tmp_path) as made:
        made.at.put("active-context.md", ACTIVE)
        made.at.put("progress.md", PROGRESS)
        made.at.put("notes.md", "# Notes\n\nSigning in needs a second factor.\n\nlogin later\n")
        made.at.put("data.json", '{"login": true}')
        yield made


async def test_lines_come_in_the_order_of_files_and_lines(searched: Searched) -> None:
    answer = await searched("login")
    assert [(r["file"], r["line"]) for r in answer["results"]] == [
        ("active-context.md", 5),
        ("progress.md", 5),
        ("data.json", 1),
        ("notes.md", 5),
    ]
    assert answer["results"][0]["content"] == "- Repair the LOGIN form"
    assert answer["results"][0]["context"] == "\n- Repair the LOGIN form"
    metadata = answer["metadata"]
    assert metadata["totalResults"] == 4
    assert metadata["truncated"] is False
    assert metadata["filesSearched"] == ["active-context.md", "progress.md", "data.json", "notes.md"]
    assert metadata["fileCount"] == 4
    assert metadata["timestamp"].endswith("Z")
    assert "warnings" not in metadata


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"caseSensitive": True}, ["progress.md", "data.json", "notes.md"]),
        ({"files": ["notes.md", "active-context.md"]}, ["active-context.md", "notes.md"]),
        ({"files": ["activeContext.md"]}, ["active-context.md"]),
        ({"maxResults": 2}, ["active-context.md", "progress.md"]),
    ],
)
async def test_lines_can_be_narrowed(searched: Searched, arguments: dict[str, Any], expected: list[str]) -> None:
    answer = await searched("login", **arguments)
    assert [found["file"] for found in answer["results"]] == expected
    assert answer["metadata"]["truncated"] is ("maxResults" in arguments)


async def test_a_result_that_has_every_line_is_not_truncated(searched: Searched) -> None:
    assert (await searched("login", maxResults=4))["metadata"]["truncated"] is False
    assert (await searched("login", maxResults=3))["metadata"]["truncated"] is True


async def test_case_counts_for_sections_too(searched: Searched) -> None:
    assert [section["file"] for section in (await searched("Factor second"))["sections"]] == ["notes.md"]
    assert (await searched("Factor second", caseSensitive=True))["sections"] == []
    assert (await searched("factor second", caseSensitive=True))["sections"][0]["file"] == "notes.md"


async def test_a_link_that_leads_outside_is_called_refused(searched: Searched, tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("login", encoding="utf-8")
    (searched.at.folder / "link.md").symlink_to(tmp_path / "other.md")
    answer = await searched("login", files=["link.md", "none.md"])
    said = answer["metadata"]["warnings"]
    assert "symbolic link" in said[0]
    assert said[1] == "File not found: none.md."


async def test_sections_follow_that_the_lines_do_not_show(searched: Searched) -> None:
    assert [s["file"] for s in (await searched("second factor"))["sections"]] == []
    answer = await searched("what does signing in need")
    assert answer["results"] == []
    (first, *_) = answer["sections"]
    assert (first["file"], first["line"], first["heading"]) == ("notes.md", 1, "Notes")
    assert "second factor" in first["text"]
    only = await searched("what does signing in need", files=["progress.md"])
    assert {section["file"] for section in only["sections"]} <= {"progress.md"}


async def test_an_edit_in_an_editor_is_found_at_once(searched: Searched) -> None:
    await searched("login")
    searched.at.put("notes.md", "# Notes\n\nThe cache is warmed at night.\n")
    assert await searched.lines("warmed") == [("notes.md", 3)]
    answer = await searched.at("search_memory_bank", query="when does the cache get warm")
    assert answer["sections"][0]["file"] == "notes.md"


async def test_a_search_scans_the_folder_once_and_reads_what_changed(searched: Searched) -> None:
    for number in range(50):
        searched.at.put(f"{number}.md", f"# Note\n\nabout {number}\n")
        os.utime(searched.at.folder / f"{number}.md", (1_000_000_000, 1_000_000_000))
    await searched("login")
    with counted_calls() as calls:
        await searched.at("search_memory_bank", query="login")
        before = calls.copy()
        calls.clear()
        (searched.at.folder / "7.md").write_bytes(b"# Note\n\nnow on login\n")
        answer = await searched.at("search_memory_bank", query="login")
    assert "7.md" in [found["file"] for found in answer["results"]]
    assert before["scandir"] == calls["scandir"] == 1
    assert 54 <= before["stat"] < 60
    assert calls["open"] - before["open"] == 2  # its folder and the file, once


async def test_what_is_small_and_known_is_searched_without_a_thread(searched: Searched) -> None:
    for name in searched.at.names():
        os.utime(searched.at.folder / name, (1_000_000_000, 1_000_000_000))
    await searched("login")
    threads = CountingThreads()
    asyncio.get_running_loop().set_default_executor(threads)
    answer = await searched.at("search_memory_bank", query="login factor")
    assert answer["sections"]
    assert threads.calls == 3  # the folder, the list of its files, the vector of the query


class Tired:
    """Folders in which one file cannot be read."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def open_folder(self, address: str) -> "Tired":
        return Tired(await self._inner.open_folder(address))

    async def read(self, path: str) -> bytes:
        if path == "progress.md":
            raise Unavailable("The disk is tired.")
        return await self._inner.read(path)


async def test_what_cannot_be_searched_is_named(searched: Searched) -> None:
    banks = searched.at.banks
    searched.at.banks = Banks(Tired(searched.at.files), banks.registry, banks.options)  # pyright: ignore
    answer = await Searched(searched.at).at("search_memory_bank", query="login")
    assert "progress.md" not in answer["metadata"]["filesSearched"]
    assert answer["metadata"]["totalResults"] == 3
    assert answer["metadata"]["warnings"] == ["Cannot read progress.md: The disk is tired."]
    answer = await searched.at("search_memory_bank", query="login", files=["missing.md", "notes.md"])
    assert answer["metadata"]["warnings"] == ["File not found: missing.md."]
    assert [found["file"] for found in answer["results"]] == ["notes.md"]


async def test_a_name_outside_the_bank_is_refused(searched: Searched) -> None:
    for name in ("../secret.md", "/etc/passwd", "graph/graph.jsonl", "x.txt"):
        with pytest.raises(Refused):
            await searched("login", files=[name])


@pytest.mark.parametrize("query", ["", "   "])
async def test_an_empty_query_is_an_error(searched: Searched, query: str) -> None:
    with pytest.raises(InvalidInput, match="Search query cannot be empty"):
        await searched(query)


async def test_only_missing_files_find_nothing(searched: Searched) -> None:
    answer = await searched("login", files=["missing.md"])
    assert answer["results"] == answer["sections"] == []


async def test_a_missing_bank_or_store_is_an_error(searched: Searched) -> None:
    with pytest.raises(NotFound):
        await searched.at("search_memory_bank", query="x", storeId="nobody")
    searched.at.session.bank = str(searched.at.home / "nowhere")
    with pytest.raises(BankNotFound):
        await searched.at("search_memory_bank", query="x")


async def test_many_files_are_all_searched_and_the_answer_stays_small(searched: Searched) -> None:
    for i in range(300):
        searched.at.put(f"note-{i:03}.md", f"number {i}\n")
    answer = await searched("number 299")
    assert [found["file"] for found in answer["results"]] == ["note-299.md"]
    assert answer["metadata"]["fileCount"] == 304
    assert len(answer["metadata"]["filesSearched"]) == 100


async def test_blanks_around_the_text_do_not_count(searched: Searched) -> None:
    assert await searched.lines("  login\n") == await searched.lines("login") != []


async def test_sections_are_as_few_as_results_may_be(searched: Searched) -> None:
    for i in range(9):
        searched.at.put(f"note-{i}.md", f"Notes about signing in, number {i}.\n")
    query = "signing about number"
    assert len((await searched(query))["sections"]) == MAX_SECTIONS
    assert len((await searched(query, maxResults=2))["sections"]) == 2


async def test_lines_below_an_entry_are_reported_under_their_own_heading(searched: Searched) -> None:
    entry = "### [Feb 14, 2026, 9:00 AM] ✨ Feature: the cart\n\nIt has a total.\n\n---\n\n"
    searched.at.put("progress.md", PROGRESS.replace("- [2026", entry + "- [2026"))
    answer = await searched("what was the fix", files=["progress.md"])
    found = answer["sections"][0]
    assert (found["line"], found["heading"]) == (11, "Project Progress > Update History")
    assert found["text"] == "- [2026-02-13 10:30:00] [Al] - Fix: login"


async def test_what_waits_for_its_vector_is_a_warning(searched: Searched) -> None:
    class Sleepy(PromptIndexing):
        async def wait_until_settled(self, within: float | None = None) -> bool:
            return False

    slow = Searched(searched.at, indexing=Sleepy(kinds=(SECTION_KIND,)))
    answer = await slow.at("search_memory_bank", query="signing in")
    assert answer["metadata"]["warnings"] == [
        "Search by meaning does not cover 4 sections yet, because embeddings are pending."
    ]
    await slow.indexing.catch_up()
    answer = await slow.at("search_memory_bank", query="signing in")
    assert "warnings" not in answer["metadata"]


class Counted(Tired):
    """Folders that count what they are asked."""

    def __init__(self, inner: Any, asked: list[str]) -> None:
        super().__init__(inner)
        self._asked = asked

    async def open_folder(self, address: str) -> "Counted":
        return Counted(await self._inner.open_folder(address), self._asked)

    async def list(self, folder: str = "") -> list[FileInfo]:
        self._asked.append("list")
        return await self._inner.list(folder)

    async def read_info(self, path: str = "") -> FileInfo | None:
        self._asked.append(f"info {path}".strip())
        return await self._inner.read_info(path)

    async def read(self, path: str) -> bytes:
        self._asked.append(f"read {path}")
        return await self._inner.read(path)


async def test_where_nothing_changed_the_folder_is_listed_once_and_no_file_is_read(searched: Searched) -> None:
    asked: list[str] = []
    banks = searched.at.banks
    searched.at.banks = Banks(Counted(searched.at.files, asked), banks.registry, banks.options)  # pyright: ignore
    searched.at.clock.pass_days(1)
    again = Searched(searched.at)
    query = "what does signing in need"
    before = await again.at("search_memory_bank", query=query)
    assert before["sections"]
    asked.clear()
    assert (await again.at("search_memory_bank", query=query))["sections"] == before["sections"]
    look, listing = asked
    assert (look.split()[0], listing) == ("info", "list")


async def test_a_file_in_another_encoding_is_searched_as_text(searched: Searched) -> None:
    searched.at.put("wide.md", "x\nLogin of old\n".encode("utf-16"))
    (found,) = (await searched("login of old"))["results"]
    assert (found["file"], found["line"], found["content"]) == ("wide.md", 2, "Login of old")


@pytest.mark.parametrize("files", [["notes.md"], ["activeContext.md", "notes.md"]])
async def test_named_files_are_looked_at_alone(searched: Searched, files: list[str]) -> None:
    asked: list[str] = []
    banks = searched.at.banks
    searched.at.banks = Banks(Counted(searched.at.files, asked), banks.registry, banks.options)  # pyright: ignore
    again = Searched(searched.at)
    answer = await again.at("search_memory_bank", query="login", files=files)
    assert answer["metadata"]["fileCount"] == len(files)
    assert "list" not in asked
    assert {each for each in asked if each.startswith("read")} <= {"read notes.md", "read active-context.md"}
    assert {record.type for record in await again.records()} == {*("notes.md", "active-context.md")[: len(files)]}


async def test_naming_files_leaves_the_index_of_the_others_as_it_is(searched: Searched) -> None:
    await searched("login")
    before = await searched.records()
    searched.at.put("notes.md", "# Notes\n\nSigning in needs a second factor, always.\n")
    only = await searched.at("search_memory_bank", query="always needs", files=["NOTES.md"])
    assert [section["file"] for section in only["sections"]] == ["notes.md"]
    after = await searched.records()
    assert [r.id for r in before if r.type != "notes.md"] == [r.id for r in after if r.type != "notes.md"]


async def test_a_text_over_several_lines_is_found(searched: Searched) -> None:
    query = "second factor.\n\nlogin later"
    assert await searched.lines(query) == [("notes.md", 3)]


async def test_fifty_million_bytes_are_searched_to_the_end(searched: Searched) -> None:
    line = "some words of a line, and of the next\n"
    count = 50_000_000 // len(line)
    searched.at.put("large.md", line * count + "the very last word\n")
    answer = await searched.at("search_memory_bank", query="VERY last", files=["large.md"])
    assert [(found["file"], found["line"]) for found in answer["results"]] == [("large.md", count + 1)]
    assert any("Only the beginning is indexed of large.md" in note for note in answer["metadata"]["warnings"])
