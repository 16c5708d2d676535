import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bank_search import Searched, searched_in
from everkept.core.ports import Library
from everkept.core.records import Batch, Change, Delete, RecordFilter, Update
from everkept.core.times import format_iso
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import Unavailable
from everkept.families.bank import section_records
from everkept.families.bank.banks import Bank
from everkept.families.bank.core_files import TEMPLATES
from everkept.families.bank.model import INDEX_BANK, INDEXED_FILE_KIND, SECTION_KIND, BankOptions
from everkept.families.bank.section_index import ROWS_PER_COMMIT
from memory_bank import bank_in

KEY = "AKIA" + "ABCDEFGHIJKLMNOP"


@pytest.fixture
async def searched(library: Library, tmp_path: Path) -> AsyncIterator[Searched]:
    async with searched_in(tmp_path / "home", library=library) as made:
        yield made


async def changes(searched: Searched) -> list[Change]:
    return await (await searched.store()).read_changes(limit=10_000)


async def texts(searched: Searched) -> list[str]:
    return [record.text.strip() for record in await searched.records()]


async def test_sections_become_records(searched: Searched) -> None:
    searched.at.put("progress.md", "# P\n\n## Log\n\n- [2026-02-13 10:30:00] [A] - Fix: x\n\n## B\n\ny\n")
    await searched.sync()
    first, second = await searched.records()
    assert first.name == "progress.md: P > Log"
    assert first.type == "progress.md"
    assert first.text == "## Log\n\n- [2026-02-13 10:30:00] [A] - Fix: x\n"
    assert format_iso(first.effective_at) == "2026-02-13T10:30:00.000Z"
    assert first.facets == {"file": "progress.md", "heading": "P > Log"}
    assert first.session is None
    assert ((first.position or 0) + 1) == second.position
    assert {change.tool for change in await changes(searched)} == {INDEX_BANK}


async def test_an_edit_changes_what_it_touches_and_nothing_else(searched: Searched) -> None:
    searched.at.put("a.md", "# One\n\nfirst\n\n# Two\n\nsecond\n\n# Three\n\nthird\n")
    await searched.sync()
    before = {record.id: record for record in await searched.records()}
    searched.at.put("a.md", "# Zero\n\nnew\n\n# One\n\nfirst\n\n# Two\n\nsecond, changed\n\n# Three\n\nthird\n")
    await searched.sync()
    after = await searched.records()
    assert [record.text.split()[-1] for record in after] == ["new", "first", "changed", "third"]
    touched = [r for r in after if r.id in before and r.version != before[r.id].version]
    assert [record.text for record in touched] == ["# Two\n\nsecond, changed\n"]
    assert len(before.keys() & {record.id for record in after}) == 3
    positions = [record.position or 0 for record in after]
    assert positions == list(range(positions[0], positions[0] + 4))


async def test_what_is_gone_is_forgotten_and_comes_back_with_its_file(searched: Searched) -> None:
    searched.at.put("a.md", "# A\n\none\n\n# B\n\ntwo\n")
    searched.at.put("b.md", "other")
    await searched.sync()
    searched.at.put("a.md", "# A\n\none\n")
    (searched.at.folder / "b.md").unlink()
    await searched.sync()
    assert await texts(searched) == ["# A\n\none"]
    searched.at.put("b.md", "other")
    await searched.sync()
    assert await texts(searched) == ["# A\n\none", "other"]


async def test_nothing_is_written_where_nothing_changed(searched: Searched) -> None:
    searched.at.put("a.md", "text")
    await searched.sync()
    count = len(await changes(searched))
    await searched.sync()
    await searched.beside().sync()
    assert len(await changes(searched)) == count


async def test_another_time_of_the_same_content_is_no_change(searched: Searched) -> None:
    searched.at.put("a.md", "text")
    await searched.sync()
    (record,) = await searched.records()
    (searched.at.folder / "a.md").touch()
    await searched.sync()
    assert await searched.records() == [record]


async def test_a_secret_is_kept_out_and_the_file_stays_as_it_is(searched: Searched) -> None:
    lines = "\n\n".join("MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7" for _ in range(60))
    pem = f"-----BEGIN PRIVATE KEY-----\n{lines}\n-----END PRIVATE KEY-----"
    text = f"# Keys {KEY}\n\nThe key is {KEY} here.\n\n{pem}\n\nafter\n"
    searched.at.put("a.md", text)
    await searched.sync()
    stored = [f"{r.name} {r.text} {r.facets}" for r in await searched.records()]
    assert KEY not in "".join(stored)
    assert "MIIE" not in "".join(stored)
    assert "[masked: " in stored[0]
    assert "after" in stored[-1]
    assert searched.at.get("a.md") == text


async def test_a_long_file_is_written_little_by_little(searched: Searched) -> None:
    searched.at.put("a.md", "".join(f"# H{i}\n\ntext {i}\n\n" for i in range(3 * ROWS_PER_COMMIT)))
    for i in range(2 * ROWS_PER_COMMIT):
        searched.at.put(f"small-{i:03}.md", "text")
    await searched.sync()
    sizes = [len(change.edits) for change in await changes(searched)]
    assert max(sizes) <= ROWS_PER_COMMIT + 1
    assert len(sizes) < 12
    assert len(await searched.records()) == 5 * ROWS_PER_COMMIT
    for path in searched.at.folder.glob("small-*"):
        path.unlink()
    await searched.sync()
    assert len(await searched.records()) == 3 * ROWS_PER_COMMIT


async def test_several_banks_share_a_project(tmp_path: Path) -> None:
    async with searched_in(tmp_path) as one, bank_in(tmp_path, library=one.at.library) as other:
        one.at.put("a.md", "ours")
        other.folder = tmp_path / "second"
        other.bank = await other.banks.open_at(str(other.folder))
        other.put("a.md", "theirs")
        two = Searched(other)
        await one.sync()
        await two.sync()
        assert await texts(one) == ["ours"]
        assert await texts(two) == ["theirs"]


async def test_two_processes_do_not_fight(searched: Searched) -> None:
    searched.at.put("a.md", "".join(f"# H{i}\n\ntext {i}\n\n" for i in range(2 * ROWS_PER_COMMIT)))
    searched.at.put("b.md", "text")
    seen: list[Batch] = []

    async def others_do_the_same(batch: Batch) -> None:
        seen.append(batch)
        if len(seen) in (1, 2):
            await searched.beside().sync()

    synced = await Searched(searched.at, watched=others_do_the_same).sync()
    assert synced.waiting == []
    found = await texts(searched)
    assert len(found) == len(set(found)) == 2 * ROWS_PER_COMMIT + 1


async def test_a_crash_between_two_commits_is_made_good(searched: Searched) -> None:
    searched.at.put("a.md", "".join(f"# H{i}\n\ntext {i}\n\n" for i in range(2 * ROWS_PER_COMMIT)))
    left = iter((True, False))

    async def crash_at_the_second(_: Batch) -> None:
        if not next(left):
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        await Searched(searched.at, watched=crash_at_the_second).sync()
    assert len(await searched.records()) == ROWS_PER_COMMIT
    await searched.sync()
    assert len(set(await texts(searched))) == len(await searched.records()) == 2 * ROWS_PER_COMMIT


async def test_many_searches_at_once_index_once(searched: Searched) -> None:
    searched.at.put("a.md", "# A\n\none\n\n# B\n\ntwo\n")
    await searched.at.records.open_to_write(searched.at.bank)
    others = [searched.beside() for _ in range(3)]
    await asyncio.gather(*(each.sync() for each in (searched, searched, *others)))
    assert await texts(searched) == ["# A\n\none", "# B\n\ntwo"]


async def test_where_only_reading_is_allowed_nothing_is_written(tmp_path: Path) -> None:
    async with searched_in(tmp_path, options=BankOptions(str(tmp_path), read_only=True)) as searched:
        searched.at.put("a.md", "text")
        await searched.sync()
        assert await searched.at.records.find_project_id(searched.at.bank) is None


async def test_time_that_is_up_leaves_the_rest_for_the_next_look(tmp_path: Path) -> None:
    async with searched_in(tmp_path) as searched:
        for i in range(200):
            searched.at.put(f"{i:03}.md", "text")
        hasty = Searched(searched.at, time_limit=1e-9)
        waiting = len((await hasty.sync()).waiting)
        assert 0 < waiting < 200
        while (await hasty.sync()).waiting:
            pass
        assert len(await hasty.records()) == 200


async def test_a_file_that_cannot_be_read_is_named_and_the_others_are_indexed(searched: Searched) -> None:
    class Faulty:
        def __init__(self, bank: Bank) -> None:
            self._files = bank.files

        def __getattr__(self, name: str) -> object:
            return getattr(self._files, name)

        async def read(self, path: str) -> bytes:
            if path == "a.md":
                raise Unavailable("The disk is tired.")
            return await self._files.read(path)

    searched.at.put("a.md", "one")
    searched.at.put("b.md", "two")
    bank = Bank(Faulty(searched.at.bank), searched.at.bank.home)  # pyright: ignore
    synced = await searched.index.sync(bank)
    assert synced.faults == {"a.md": "The disk is tired."}
    assert await texts(searched) == ["two"]


async def test_an_index_of_another_form_is_made_anew(searched: Searched) -> None:
    searched.at.put("a.md", "# A\n\none\n\n# B\n\ntwo\n")
    await searched.sync()
    store = await searched.store()
    (file,) = await store.scan(RecordFilter(kinds=(INDEXED_FILE_KIND,)))
    first = (await searched.records())[0]
    facets = {key: value for key, value in file.facets.items() if key != "form"}
    steps = (Update(file.id, {"facets": facets}, file.version), Delete(first.ref))
    await store.commit(Batch(steps, 1, "an earlier program"))
    await searched.beside().sync()
    assert await texts(searched) == ["# A\n\none", "# B\n\ntwo"]


async def test_what_is_yet_to_be_written_is_not_indexed(searched: Searched) -> None:
    for name, text in TEMPLATES.items():
        searched.at.put(name, text)
    await searched.sync()
    assert await texts(searched) == []
    searched.at.put("progress.md", TEMPLATES["progress.md"].replace("[Milestone 1]", "Login"))
    await searched.sync()
    assert await texts(searched) == ["## Completed Milestones\n\n- Login"]


async def test_a_file_in_another_encoding_is_indexed_by_its_text(searched: Searched) -> None:
    searched.at.put("a.md", "# Grüße\n\nan alle\n".encode("utf-16"))
    await searched.sync()
    assert await texts(searched) == ["# Grüße\n\nan alle"]


async def test_a_bank_that_was_moved_leaves_nothing_in_the_index(tmp_path: Path) -> None:
    library = MemoryLibrary()
    async with searched_in(tmp_path, library=library) as old:
        for name in ("a.md", "b.md"):
            old.at.put(name, f"# {name}\n\nPostgres holds the orders.\n")
        await old.sync()
        before = old.at.folder
    beside = BankOptions(str(tmp_path), folder="beside")
    async with searched_in(tmp_path, library=library, options=beside) as other:
        other.at.put("c.md", "# Other\n\nIt stays where it is.\n")
        await other.sync()
        assert await scopes(other) == {str(before), str(other.at.folder)}
    shutil.move(before, tmp_path / "moved")
    options = BankOptions(str(tmp_path), folder="moved")
    async with searched_in(tmp_path, library=library, options=options) as moved:
        await moved.sync()
        assert await scopes(moved) == {str(moved.at.folder), str(other.at.folder)}
        sections = await (await moved.store()).scan(RecordFilter(kinds=(SECTION_KIND,)))
        assert sorted(section.type or "" for section in sections) == ["a.md", "b.md", "c.md"]


async def scopes(searched: Searched) -> set[str]:
    """The addresses of all banks that the index knows files of."""
    files = await (await searched.store()).scan(RecordFilter(kinds=(INDEXED_FILE_KIND,)))
    return {file.facets["bank"] for file in files}


async def test_of_very_many_entries_the_first_are_indexed_and_it_is_said_each_time(
    searched: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(section_records, "MAX_PARTS", 3)
    long = "of many words " * 60
    entries = [f"- [2026-02-13 10:30:0{number}] entry {long}{number}\n" for number in range(5)]
    searched.at.put("progress.md", "# Progress\n\n" + "".join(entries))
    searched.at.put("notes.md", "# Notes\n\nshort\n")
    for index in (searched, searched, searched.beside()):
        assert (await index.sync()).partly == ["progress.md"]
    assert len([text for text in await texts(searched) if "entry" in text]) == 3
    searched.at.put("progress.md", "# Progress\n\n" + "".join(entries[:3]))
    assert (await searched.sync()).partly == []
