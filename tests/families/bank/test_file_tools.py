"""The tools for files, as a client sees them."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everkept.core.sessions import Session
from everkept.errors import (
    BankNotFound,
    EtagMismatch,
    EverkeptError,
    FileNotFound,
    InvalidInput,
    NotFound,
    Refused,
    Unavailable,
)
from everkept.families.bank.bank_files import compute_etag
from everkept.families.bank.banks import Bank, StoreRegistration
from everkept.families.bank.file_answers import MAX_CONTENT_BYTES
from everkept.families.bank.file_tools import FileTools
from everkept.families.bank.model import CORE_FILES, BankOptions
from everkept.files.resolver import FileStoreResolver
from file_stores import CountingThreads, counted_calls
from memory_bank import Banking, bank_in
from ssh_servers import LOOPBACK, Keys, asyncssh_server


async def no_graph(_: Bank) -> str | None:
    return None


def offer(team: Banking) -> Banking:
    team.offer(FileTools(team.banks, team.records, team.clock, no_graph))
    return team


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[Banking]:
    """A client in a folder that has no bank yet."""
    async with bank_in(tmp_path, made=False) as team:
        yield offer(team)


@pytest.fixture
async def bank(team: Banking) -> Banking:
    await team("initialize_memory_bank", path=str(team.home))
    return team


@pytest.mark.parametrize(("tool", "for_each_file"), [("get_memory_bank_status", 1), ("list_memory_bank_files", 0)])
async def test_a_folder_is_scanned_once_and_each_file_looked_at_only_for_its_time(
    bank: Banking, tool: str, for_each_file: int
) -> None:
    with counted_calls() as calls:
        await bank(tool)
        few = calls.copy()
        calls.clear()
        for number in range(50):
            bank.put(f"{number}.md", "")
        await bank(tool)
    assert calls["scandir"] == few["scandir"] == 1
    assert calls["stat"] - few["stat"] == 50 * for_each_file
    assert calls.total() - few.total() <= 50 * (for_each_file + 3)  # its kind is known already


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_memory_bank_file", {"filename": "activeContext.md"}),
        ("get_context_bundle", {}),
        ("get_context_digest", {}),
        ("batch_read_files", {"files": list(CORE_FILES)}),
        ("write_memory_bank_file", {"filename": "new.md", "content": "new"}),
    ],
)
async def test_a_call_looks_for_its_bank_and_is_then_done_in_one_thread_call(
    bank: Banking, tool: str, arguments: dict[str, Any]
) -> None:
    threads = CountingThreads()
    asyncio.get_running_loop().set_default_executor(threads)
    await bank(tool, **arguments)
    assert threads.calls == 2


async def test_a_file_that_another_program_changes_in_place_is_the_newest(bank: Banking) -> None:
    for number in range(3):
        bank.put(f"{number}.md", "")
    await bank("get_memory_bank_status")
    with (bank.folder / "1.md").open("r+b") as file:
        file.write(b"more")
    os.utime(bank.folder / "1.md", (4_000_000_000, 4_000_000_000))
    status = await bank("get_memory_bank_status")
    assert status["lastUpdated"].startswith("2096-10-02")


NEEDS_A_BANK: dict[str, dict[str, Any]] = {
    "get_memory_bank_status": {},
    "list_memory_bank_files": {},
    "read_memory_bank_file": {"filename": "progress.md"},
    "write_memory_bank_file": {"filename": "progress.md", "content": ""},
    "get_context_bundle": {},
    "get_context_digest": {},
    "batch_read_files": {"files": ["progress.md"]},
    "batch_write_files": {"files": [{"filename": "progress.md", "content": ""}]},
}


async def test_initializing_makes_the_bank_and_answers_where_it_is(team: Banking) -> None:
    text = await team.text("initialize_memory_bank", path=str(team.home))
    assert text == f"Memory Bank initialized at {team.folder}"
    assert team.names() == sorted(CORE_FILES)
    assert not list(team.home.glob(".mcprules-*"))


async def test_initializing_again_changes_nothing(bank: Banking) -> None:
    bank.put("progress.md", "mine")
    answer = await bank("initialize_memory_bank", path=".")
    assert answer["created"] == []
    assert bank.get("progress.md") == "mine"


async def test_initializing_selects_the_bank_for_the_session(team: Banking, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="Nothing was created"):
        await team("initialize_memory_bank", path="deep/er")
    assert not (tmp_path / "deep").exists()
    await team("initialize_memory_bank", path="deep/er", createFolder=True)
    status = await team("get_memory_bank_status")
    assert status["path"] == str(tmp_path / "deep" / "er" / "memory-bank")
    assert status["isComplete"] is True


async def test_initializing_uses_the_folder_of_the_start_unless_another_is_named(team: Banking) -> None:
    assert (await team("initialize_memory_bank"))["path"] == str(team.folder)
    assert team.names() == sorted(CORE_FILES)


async def test_a_batch_fails_if_every_file_fails_and_keeps_each_reason(bank: Banking) -> None:
    with pytest.raises(FileNotFound, match=r"No file was read\. a\.md: File not found") as read:
        await bank("batch_read_files", files=["a.md", "../b.md"])
    assert read.value.facts["metadata"]["failed"] == 2
    assert read.value.facts["results"]["../b.md"]["error"]
    with pytest.raises(EtagMismatch, match="No file was written"):
        await bank("batch_write_files", files=[{"filename": "progress.md", "content": "x", "ifMatchEtag": "0" * 16}])


async def test_a_connection_without_state_is_told_what_to_pass(tmp_path: Path) -> None:
    async with bank_in(tmp_path, session=Session(stateful=False), made=False) as team:
        answer = await offer(team).result("initialize_memory_bank", path=".")
        assert "storeId" in answer.facts["note"]
        assert answer.text.startswith(f"Memory Bank initialized at {team.folder}. ")


async def test_a_connection_that_keeps_no_state_is_not_told_that_a_path_was_set(tmp_path: Path) -> None:
    async with bank_in(tmp_path, session=Session(stateful=False)) as team:
        team.put("progress.md", "# Progress\n")
        answer = await offer(team).result("set_memory_bank_path", path=".")
        assert answer.text.startswith(f"Found a memory bank at {team.folder}. ")
        assert "storeId" in answer.text


async def test_mode_rules_are_written_only_on_request(team: Banking) -> None:
    answer = await team("initialize_memory_bank", path=".", createModeRules=True)
    assert answer["modeRules"]
    assert sorted(answer["modeRules"]) == sorted(p.name for p in team.home.glob(".mcprules-*"))


async def test_a_failure_to_initialize_is_an_error(team: Banking) -> None:
    (team.home / "file").write_text("no folder", encoding="utf-8")
    with pytest.raises(EverkeptError) as caught:
        await team("initialize_memory_bank", path="file")
    assert str(caught.value).startswith("Failed to initialize Memory Bank: ")
    assert team.session.bank is None


async def test_the_folder_of_a_bank_itself_will_do(bank: Banking) -> None:
    answer = await bank("initialize_memory_bank", path=str(bank.folder))
    assert answer["path"] == str(bank.folder)
    assert answer["created"] == []


@pytest.mark.parametrize("path", ["", "  "])
async def test_an_empty_path_is_refused(team: Banking, path: str) -> None:
    with pytest.raises(InvalidInput):
        await team("initialize_memory_bank", path=path)
    with pytest.raises(InvalidInput):
        await team("set_memory_bank_path", path=path)


async def test_the_path_is_set_to_a_bank_that_exists(bank: Banking) -> None:
    other = bank.home / "other" / "memory-bank"
    other.mkdir(parents=True)
    (other / "notes.md").write_text("x", encoding="utf-8")
    assert await bank.text("set_memory_bank_path", path="other") == f"Memory Bank path set to {other}"
    assert await bank.text("list_memory_bank_files") == "Files in Memory Bank:\nnotes.md"
    await bank("set_memory_bank_path")
    assert (await bank("get_memory_bank_status"))["path"] == str(bank.folder)


@pytest.mark.parametrize("has_folder", [True, False])
async def test_the_path_is_not_set_to_a_folder_without_markdown(bank: Banking, *, has_folder: bool) -> None:
    if has_folder:
        (bank.home / "other" / "memory-bank").mkdir(parents=True)
    with pytest.raises(BankNotFound) as caught:
        await bank("set_memory_bank_path", path="other")
    assert str(caught.value) == (
        "Memory Bank not found in the provided directory. Use initialize_memory_bank to create one."
        f" Expected at {bank.home / 'other' / 'memory-bank'}."
    )
    assert (await bank("get_memory_bank_status"))["path"] == str(bank.folder)


@pytest.mark.parametrize(("tool", "arguments"), NEEDS_A_BANK.items())
async def test_without_a_bank_the_error_says_where_one_was_expected(
    team: Banking, tool: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(BankNotFound) as caught:
        await team(tool, **arguments)
    envelope = caught.value.to_envelope()
    assert envelope["expectedPath"] == str(team.folder)
    assert "initialize_memory_bank" in envelope["suggestion"]
    is_whole = tool.startswith(("get_context", "batch"))
    said = (
        "Memory Bank not initialized. Use set_memory_bank_path or initialize_memory_bank first."
        if is_whole
        else "Memory Bank not found. Use initialize_memory_bank to create one."
    )
    assert str(caught.value) == f"{said} Expected at {team.folder}."


@pytest.mark.parametrize(("tool", "arguments"), NEEDS_A_BANK.items())
async def test_a_registered_store_can_be_named_with_each_call(
    bank: Banking, tool: str, arguments: dict[str, Any]
) -> None:
    other = bank.home / "other"
    await bank.banks.registry.put(StoreRegistration("team", str(other), "local", 1, 1))
    with pytest.raises(BankNotFound) as caught:
        await bank(tool, storeId="team", **arguments)
    assert caught.value.facts["expectedPath"] == str(other / "memory-bank")
    with pytest.raises(NotFound) as unknown:
        await bank(tool, storeId="nobody's", **arguments)
    assert unknown.value.code == "not_found"


async def test_no_place_at_the_start_is_an_error_too(tmp_path: Path) -> None:
    async with bank_in(tmp_path, options=BankOptions(place=None), made=False) as team:
        offer(team)
        for tool in ("get_memory_bank_status", "set_memory_bank_path"):
            with pytest.raises(BankNotFound) as caught:
                await team(tool)
            way_out = "No folder is selected. Pass `path` to it, or pass `storeId` to this call."
            assert str(caught.value).endswith(f"create one. {way_out}")
            assert "expectedPath" not in caught.value.facts
            assert caught.value.facts["suggestion"].endswith(way_out)


async def test_the_status_tells_core_files_under_any_name(team: Banking) -> None:
    team.put("activeContext.md", "x")
    team.put("decisionLog.md", "x")
    team.put("decision-log.md", "x")
    team.put("graph/graph.jsonl", "")
    team.put("notes.md", "x")
    for name, second in (("notes.md", 5_000_000_000), ("activeContext.md", 1_000_000_000)):
        os.utime(team.folder / name, (second, second))
    status = await team("get_memory_bank_status")
    assert status["files"] == ["activeContext.md", "decision-log.md", "decisionLog.md", "graph", "notes.md"]
    assert status["coreFilesPresent"] == ["active-context.md", "decision-log.md"]
    assert status["missingCoreFiles"] == ["product-context.md", "progress.md", "system-patterns.md"]
    assert (status["isComplete"], status["language"]) == (False, "en")
    assert status["lastUpdated"] == "2128-06-11T08:53:20.000Z"
    assert [warning["code"] for warning in status["warnings"]] == ["two_names"]
    assert "decisionLog.md" in (await team.text("list_memory_bank_files")).partition("Warning")[2]


async def test_working_files_are_neither_listed_nor_reached(bank: Banking) -> None:
    bank.put(".progress.md.1a2b3c4d.tmp", "half")
    bank.put(".secret.md", "hidden")
    listed = await bank("list_memory_bank_files")
    assert listed["files"] == sorted(CORE_FILES)
    for name in (".progress.md.1a2b3c4d.tmp", ".secret.md", ".everkept-bank.lock"):
        with pytest.raises(Refused):
            await bank("read_memory_bank_file", filename=name)
        with pytest.raises(Refused):
            await bank("write_memory_bank_file", filename=name, content="x")


async def test_a_file_is_read_with_its_tag_or_bare(bank: Banking) -> None:
    bank.put("progress.md", "text\n")
    answer = await bank("read_memory_bank_file", filename="progress.md")
    assert answer == {"content": "text\n", "etag": compute_etag(b"text\n"), "filename": "progress.md"}
    bare = await bank.text("read_memory_bank_file", filename="progress.md", includeEtag=False)
    assert bare == "text\n"
    bank.put("progress.md", "")
    assert await bank.text("read_memory_bank_file", filename="progress.md", includeEtag=False) == ""


async def test_lines_of_a_file_come_with_the_tag_of_all_of_it(bank: Banking) -> None:
    bank.put("progress.md", "a\nb\nc\nd\n")
    answer = await bank("read_memory_bank_file", filename="progress.md", startLine=2, endLine=3)
    assert answer == {
        "content": "b\nc\n",
        "etag": compute_etag(b"a\nb\nc\nd\n"),
        "filename": "progress.md",
        "startLine": 2,
        "endLine": 3,
        "totalLines": 4,
    }
    with pytest.raises(InvalidInput):
        await bank("read_memory_bank_file", filename="progress.md", startLine=9)


async def test_what_is_not_utf_8_is_shown_with_a_warning(bank: Banking) -> None:
    bank.put("notes.md", "Größe".encode("latin-1"))
    answer = await bank("read_memory_bank_file", filename="notes.md")
    assert answer["content"] == "Gr\ufffd\ufffde"
    assert [warning["code"] for warning in answer["warnings"]] == ["not_utf8"]


@pytest.mark.parametrize("name", ["missing.md", "../progress.md", "/etc/passwd", "notes.txt"])
async def test_a_file_that_cannot_be_read_is_named(bank: Banking, name: str) -> None:
    with pytest.raises(EverkeptError) as caught:
        await bank("read_memory_bank_file", filename=name)
    assert str(caught.value).startswith(f"Error reading file {name}: ")
    assert caught.value.code == ("FILE_NOT_FOUND" if name == "missing.md" else "refused")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "../outside.md",
            "it is not a valid name inside this folder: it holds '..'. Use a relative name, such as progress.md.",
        ),
        ("notes.txt", "it is not a valid name for a bank file. Use a name at the top level "),
        ("missing.md", "File not found. List the files with list_memory_bank_files."),
        ("dir.md", "it is a folder, not a file. List the files with list_memory_bank_files."),
    ],
)
async def test_an_error_names_the_file_once(bank: Banking, name: str, said: str) -> None:
    (bank.folder / "dir.md").mkdir()
    with pytest.raises(EverkeptError) as caught:
        await bank("read_memory_bank_file", filename=name)
    assert str(caught.value).startswith(f"Error reading file {name}: {said}")
    assert str(caught.value).count(name) == 1


async def test_writing_answers_with_name_and_tag(bank: Banking) -> None:
    answer = await bank("write_memory_bank_file", filename="myNotes.md", content="hello\n")
    assert answer == {
        "success": True,
        "message": "File my-notes.md successfully written to Memory Bank",
        "filename": "my-notes.md",
        "etag": "5891b5b522d5df08",
    }
    assert (await bank("read_memory_bank_file", filename="myNotes.md"))["content"] == "hello\n"


async def test_a_changed_file_is_not_overwritten(bank: Banking) -> None:
    read = await bank("read_memory_bank_file", filename="progress.md")
    bank.put("progress.md", "theirs")
    with pytest.raises(EtagMismatch) as caught:
        await bank("write_memory_bank_file", filename="progress.md", content="mine", ifMatchEtag=read["etag"])
    envelope = caught.value.to_envelope()
    assert envelope["error"] == "ETAG_MISMATCH"
    assert (envelope["expectedEtag"], envelope["currentEtag"]) == (read["etag"], compute_etag(b"theirs"))
    assert bank.get("progress.md") == "theirs"
    await bank("write_memory_bank_file", filename="progress.md", content="", ifMatchEtag="")
    assert bank.get("progress.md") == ""


async def test_a_tag_for_a_missing_file_is_an_error(bank: Banking) -> None:
    with pytest.raises(FileNotFound) as caught:
        await bank("write_memory_bank_file", filename="new.md", content="x", ifMatchEtag="0" * 16)
    assert caught.value.to_envelope()["error"] == "FILE_NOT_FOUND"
    assert "new.md" not in bank.names()


async def test_a_secret_is_written_as_given_and_warned_about(bank: Banking) -> None:
    content = "password = hunter2secret9\n"
    answer = await bank("write_memory_bank_file", filename="notes.md", content=content)
    assert [warning["code"] for warning in answer["warnings"]] == ["secret_in_file"]
    assert bank.get("notes.md") == content
    files = [{"filename": "a.md", "content": content}, {"filename": "b.md", "content": "fine"}]
    [warning] = (await bank("batch_write_files", files=files))["warnings"]
    assert "a.md" in warning["message"]


async def test_content_that_is_too_long_is_refused_with_the_limit(bank: Banking) -> None:
    content = "ä" * (MAX_CONTENT_BYTES // 2 + 1)
    with pytest.raises(InvalidInput) as caught:
        await bank("write_memory_bank_file", filename="big.md", content=content)
    assert f"{MAX_CONTENT_BYTES:,}" in str(caught.value)
    with pytest.raises(InvalidInput):
        await bank("batch_write_files", files=[{"filename": "big.md", "content": content}])
    assert "big.md" not in bank.names()


@pytest.mark.thorough
async def test_a_file_of_50_mb_is_written_read_by_lines_and_replaced(bank: Banking) -> None:
    line = "a line of a very long file in the bank\n"
    count = 50_000_000 // len(line)
    written = await bank("write_memory_bank_file", filename="big.md", content=line * count)
    part = await bank("read_memory_bank_file", filename="big.md", startLine=count)
    assert (part["content"], part["totalLines"]) == (line, count)
    assert part["etag"] == written["etag"]
    await bank("write_memory_bank_file", filename="big.md", content="small", ifMatchEtag=part["etag"])
    assert bank.get("big.md") == "small"


async def test_a_bank_on_another_machine_works_the_same(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    async with asyncssh_server(there, Keys.made_in(tmp_path / "keys")) as server:
        address = f"ssh://{server.user}@{LOOPBACK}:{server.port}/shop"
        options, files = BankOptions(place=address), FileStoreResolver(server.options)
        async with bank_in(there / "shop", options=options, files=files, made=False) as team:
            offer(team)
            text = await team.text("initialize_memory_bank", path=".", createFolder=True)
            assert text == f"Memory Bank initialized at {address}/memory-bank"
            await team("write_memory_bank_file", filename="activeContext.md", content="new")
            assert team.get("active-context.md") == "new"
            assert (await team("get_memory_bank_status"))["isComplete"] is True
            again = await team("initialize_memory_bank", path=f"{address}/deep er", createFolder=True)
            assert len(again["created"]) == len(CORE_FILES)
            assert (there / "shop" / "deep er" / "memory-bank" / "progress.md").exists()
    with pytest.raises(Unavailable):
        await offer(team)("get_memory_bank_status")


async def test_a_batch_counts_what_was_read(bank: Banking) -> None:
    answer = await bank("batch_read_files", files=["progress.md", "none.md"])
    assert answer["results"]["none.md"]["content"] == ""
    counts = answer["metadata"]
    assert (counts["requested"], counts["successful"], counts["failed"]) == (2, 1, 1)


async def test_a_batch_counts_what_was_written(bank: Banking) -> None:
    files = [
        {"filename": "a.md", "content": "a"},
        {"filename": "b.md", "content": "b", "ifMatchEtag": "0" * 16},
        {"filename": "c.md", "content": "c"},
    ]
    answer = await bank("batch_write_files", files=files, stopOnError=True)
    assert answer["results"]["a.md"] == {"success": True, "etag": compute_etag(b"a")}
    assert answer["results"]["c.md"] == {"success": False, "error": "Skipped due to previous error"}
    counts = answer["metadata"]
    assert (counts["requested"], counts["successful"], counts["failed"]) == (3, 1, 2)


@pytest.mark.parametrize("tool", ["batch_read_files", "batch_write_files"])
async def test_an_empty_batch_is_an_error(bank: Banking, tool: str) -> None:
    with pytest.raises(InvalidInput):
        await bank(tool, files=[])
