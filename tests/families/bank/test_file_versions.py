"""Earlier versions of a bank's files, and writes over what others changed."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.core.files import FileStore
from everkept.core.sessions import Session
from everkept.errors import Conflict, EtagMismatch, NotFound, Refused
from everkept.families.bank import file_versions
from everkept.families.bank.banks import Bank, Banks, StoreRegistry
from everkept.families.bank.file_tools import FileTools
from everkept.families.bank.file_versions import FileVersions
from everkept.families.bank.progress_tools import ProgressTools
from memory_bank import Banking, bank_in


async def no_graph(_: Bank) -> str | None:
    return None


class Kept:
    """A bank with a history, and the tools that write its files."""

    def __init__(self, bank: Banking, versions: FileVersions) -> None:
        self.bank = bank
        self.versions = versions

    async def contents(self, name: str) -> list[str]:
        found = await self.versions.list_versions(self.bank.bank, name)
        return [(await self.versions.read(self.bank.bank, version)).decode() for version in found]

    async def write(self, name: str, content: str, **more: object) -> None:
        await self.bank("write_memory_bank_file", filename=name, content=content, **more)

    async def undo(self) -> list[str]:
        """Undo the newest write, and return the names of its files."""
        write = await self.versions.find_last_write(self.bank.bank)
        if write is None:
            return []
        await self.versions.undo(self.bank.bank, write)
        return [version.name for version in write.versions]

    def other_client(self, *, stateful: bool = True) -> None:
        self.bank.session = Session(client="other", stateful=stateful)


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    async with bank_in(tmp_path / "shop") as bank:

        async def open_versions(name: str, make: bool) -> FileStore:
            return await bank.files.open_folder(str(tmp_path / "data" / name))

        versions = FileVersions(open_versions, bank.clock)
        banks = Banks(bank.files, StoreRegistry(bank.library), bank.banks.options, versions.attach)
        bank.offer(FileTools(banks, bank.records, bank.clock, no_graph), ProgressTools(banks, bank.clock))
        yield Kept(bank, versions)


async def test_a_write_over_what_someone_changed_is_refused_with_the_difference(kept: Kept) -> None:
    kept.bank.put("notes.md", "one\ntwo\nthree\n")
    await kept.bank("read_memory_bank_file", filename="notes.md")
    kept.bank.put("notes.md", "one\nTWO by hand\nthree\n")
    with pytest.raises(EtagMismatch, match="changed by someone else") as caught:
        await kept.write("notes.md", "mine")
    assert "-two\n+TWO by hand" in str(caught.value)
    assert "-two\n+TWO by hand" in caught.value.facts["difference"]
    assert kept.bank.get("notes.md") == "one\nTWO by hand\nthree\n"
    await kept.write("notes.md", "mine", force=True)
    assert kept.bank.get("notes.md") == "mine"


async def test_reading_again_or_an_etag_allows_the_write(kept: Kept) -> None:
    kept.bank.put("notes.md", "one")
    await kept.bank("batch_read_files", files=["notes.md"])
    kept.bank.put("notes.md", "two")
    files = [{"filename": "notes.md", "content": "mine"}]
    with pytest.raises(EtagMismatch, match="No file was written"):
        await kept.bank("batch_write_files", files=files)
    etag = (await kept.bank("batch_read_files", files=["notes.md"]))["results"]["notes.md"]["etag"]
    await kept.bank("batch_write_files", files=files)
    kept.other_client()
    await kept.bank("read_memory_bank_file", filename="notes.md")
    kept.bank.put("notes.md", "one")
    await kept.write("notes.md", "by etag", ifMatchEtag=etag_of("one"))
    assert etag == etag_of("two")
    assert kept.bank.get("notes.md") == "by etag"


def etag_of(text: str) -> str:
    return file_versions.compute_etag(text.encode())


async def test_own_edits_and_unread_files_are_not_in_the_way(kept: Kept) -> None:
    kept.bank.put("progress.md", "# Progress\n\n## Update History\n")
    await kept.write("progress.md", "# Progress\n\n## Update History\n\n- own\n")
    await kept.bank("track_progress", action="a", description="d")
    await kept.write("progress.md", "whole")
    kept.other_client()
    await kept.write("progress.md", "another client, which has read nothing")
    kept.bank.put("new.md", "x")
    await kept.write("new.md", "y")


async def test_the_edit_of_another_client_counts_as_a_change_by_someone(kept: Kept) -> None:
    kept.bank.put("progress.md", "# Progress\n\n## Update History\n")
    await kept.bank("get_context_bundle")
    mine = kept.bank.session
    kept.other_client()
    await kept.bank("track_progress", action="theirs", description="d")
    kept.bank.session = mine
    with pytest.raises(EtagMismatch, match="theirs"):
        await kept.write("progress.md", "whole")


async def test_over_a_stateless_connection_the_answer_asks_for_the_etag(kept: Kept) -> None:
    kept.bank.put("notes.md", "one")
    kept.other_client(stateful=False)
    answer = await kept.bank("read_memory_bank_file", filename="notes.md")
    assert "ifMatchEtag" in answer["note"]
    assert "ifMatchEtag" in (await kept.bank("batch_read_files", files=["notes.md"]))["note"]
    kept.bank.put("notes.md", "two")
    with pytest.raises(EtagMismatch):
        await kept.write("notes.md", "mine", ifMatchEtag=answer["etag"])
    kept.other_client()
    assert "note" not in await kept.bank("read_memory_bank_file", filename="notes.md")


async def test_the_content_before_each_write_is_kept(kept: Kept) -> None:
    for content in ("one", "two", "two", "three"):
        await kept.write("activeContext.md", content)
    await kept.bank("add_session_note", note="n")
    assert await kept.contents("active-context.md") == ["three", "two", "one"]


async def test_a_version_is_restored_and_the_restore_can_be_undone(kept: Kept) -> None:
    for content in ("one", "two", "three"):
        await kept.write("notes.md", content)
    assert (await kept.versions.restore(kept.bank.bank, "notes.md", etag_of("one")[:6])).name == "notes.md"
    assert kept.bank.get("notes.md") == "one"
    await kept.undo()
    assert kept.bank.get("notes.md") == "three"
    assert (await kept.contents("notes.md"))[:2] == ["one", "three"]
    with pytest.raises(NotFound):
        await kept.versions.restore(kept.bank.bank, "notes.md", "0" * 8)


async def test_undo_goes_back_one_write_at_a_time_with_all_its_files(kept: Kept) -> None:
    kept.bank.put("progress.md", "# Progress\n\n## Update History\n")
    kept.bank.put("active-context.md", "# Current Context\n")
    await kept.write("notes.md", "one")
    await kept.write("notes.md", "two")
    await kept.bank("track_progress", action="a", description="d")
    assert await kept.undo() == ["active-context.md", "progress.md"]
    assert kept.bank.get("progress.md") == "# Progress\n\n## Update History\n"
    assert kept.bank.get("active-context.md") == "# Current Context\n"
    assert await kept.undo() == ["notes.md"]
    assert kept.bank.get("notes.md") == "one"
    assert await kept.undo() == []


async def test_a_write_whose_undo_was_undone_can_be_undone_again(kept: Kept) -> None:
    for content in ("one", "two"):
        await kept.write("notes.md", content)
    await kept.undo()
    undoing, write, *_ = await kept.versions.list_writes(kept.bank.bank.address)
    assert (undoing.undoes, write.is_undone) == (write.at, True)
    await kept.versions.undo(kept.bank.bank, undoing)
    assert kept.bank.get("notes.md") == "two"
    _, undoing, write, *_ = await kept.versions.list_writes(kept.bank.bank.address)
    assert (undoing.is_undone, write.is_undone) == (True, False)
    assert await kept.undo() == ["notes.md"]
    assert kept.bank.get("notes.md") == "one"


async def test_undo_refuses_to_touch_a_file_that_changed_afterwards(kept: Kept) -> None:
    await kept.write("notes.md", "one")
    await kept.write("notes.md", "two")
    kept.bank.put("notes.md", "by hand")
    with pytest.raises(Conflict, match="Nothing was undone"):
        await kept.undo()
    assert kept.bank.get("notes.md") == "by hand"


async def test_versions_are_bounded_in_number_and_bytes(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_versions, "MAX_VERSIONS", 3)
    for number in range(6):
        await kept.write("notes.md", str(number))
    assert await kept.contents("notes.md") == ["4", "3", "2"]
    monkeypatch.setattr(file_versions, "MAX_BYTES", 20)
    await kept.write("notes.md", "last")
    assert await kept.contents("notes.md") == ["5", "4"]


async def test_a_damaged_version_changes_nothing(kept: Kept, tmp_path: Path) -> None:
    await kept.write("notes.md", "one")
    await kept.write("notes.md", "two")
    [version] = (tmp_path / "data").rglob("*-*")
    version.write_bytes(b"broken")
    with pytest.raises(Refused, match="damaged"):
        await kept.versions.restore(kept.bank.bank, "notes.md", None)
    assert kept.bank.get("notes.md") == "two"


async def test_versions_with_a_text_are_erased(kept: Kept) -> None:
    for content in ("one", "secret word", "three", "four"):
        await kept.write("notes.md", content)
    assert await kept.versions.remove_matching(kept.bank.bank, lambda text: "secret" in text) == 1
    assert await kept.contents("notes.md") == ["three", "one"]
