"""Reading, writing and editing the files of a bank, under whatever names they have."""

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from everkept.core.files import FileStore
from everkept.errors import EtagMismatch, FileNotFound, Refused, StorageFull
from everkept.families.bank.bank_files import (
    WriteOptions,
    compute_etag,
    detect_encoding,
    edit,
    find_name,
    list_file_names,
    read,
    settle_name,
    write,
)
from everkept.families.bank.banks import Bank
from everkept.families.bank.core_files import prepare_core_files
from everkept.values import replace
from examples import examples
from file_stores import CountingThreads, cancel_at_once
from memory_bank import Banking, bank_in


class Filling:
    """A folder whose disk is full after some writes."""

    def __init__(self, files: FileStore, writes: int) -> None:
        self._files = files
        self._left = writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    async def write(self, path: str, data: bytes) -> None:
        self._left -= 1
        # One write fails; putting things back afterwards works.
        if self._left == -1:
            raise StorageFull("No room.")
        await self._files.write(path, data)

    async def write_all(self, contents: Mapping[str, bytes]) -> None:
        for path, data in contents.items():
            await self.write(path, data)


class Cancelling:
    """A folder whose n-th write comes at the moment when the one who asked for it is cancelled."""

    def __init__(self, files: FileStore, writes: int) -> None:
        self._files = files
        self._left = writes
        self._loop = asyncio.get_running_loop()
        self.asking: asyncio.Task[object] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    async def write(self, path: str, data: bytes) -> None:
        self._left -= 1
        if self._left == 0 and self.asking is not None:
            cancel_at_once(self.asking, self._loop)
        await self._files.write(path, data)

    async def write_all(self, contents: Mapping[str, bytes]) -> None:
        for path, data in contents.items():
            await self.write(path, data)


def filling(bank: Bank, writes: int) -> Bank:
    return replace(bank, files=cast(FileStore, Filling(bank.files, writes)))


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[Banking]:
    async with bank_in(tmp_path) as team:
        yield team


@pytest.mark.parametrize(
    ("content", "etag"),
    [("", "e3b0c44298fc1c14"), ("hello\n", "5891b5b522d5df08"), ("# Active Context\n", "16f76aac0d7d780e")],
)
async def test_the_tag_is_made_of_the_bytes(team: Banking, content: str, etag: str) -> None:
    assert compute_etag(content.encode()) == etag
    assert (await write(team.bank, "a.md", content)).etag == etag
    assert (await read(team.bank, "a.md")).etag == etag


async def test_a_file_is_written_only_over_the_one_that_was_read(team: Banking) -> None:
    first = await write(team.bank, "a.md", "one")
    team.put("a.md", "edited by hand")
    with pytest.raises(EtagMismatch) as caught:
        await write(team.bank, "a.md", "two", WriteOptions(first.etag))
    assert caught.value.facts["currentEtag"] == compute_etag(b"edited by hand")
    assert team.get("a.md") == "edited by hand"
    await write(team.bank, "a.md", "two", WriteOptions(compute_etag(b"edited by hand")))
    assert team.get("a.md") == "two"


async def test_of_many_who_read_the_same_only_one_writes(team: Banking) -> None:
    first = await write(team.bank, "a.md", "start")
    outcomes = await asyncio.gather(
        *(write(team.bank, "a.md", f"by {n}", WriteOptions(first.etag)) for n in range(8)), return_exceptions=True
    )
    assert sum(isinstance(outcome, EtagMismatch) for outcome in outcomes) == 7


async def test_no_file_fits_a_tag_when_there_is_none(team: Banking) -> None:
    with pytest.raises(FileNotFound):
        await write(team.bank, "a.md", "x", WriteOptions("0123456789abcdef"))
    assert team.names() == []


async def test_a_failed_check_does_not_migrate_a_name(team: Banking) -> None:
    team.put("activeContext.md", "old")
    with pytest.raises(EtagMismatch):
        await write(team.bank, "active-context.md", "new", WriteOptions("0123456789abcdef"))
    assert team.names() == ["activeContext.md"]


async def test_an_old_name_is_read_and_gets_the_new_one_when_written(team: Banking) -> None:
    team.put("activeContext.md", "old")
    assert (await read(team.bank, "active-context.md")).text == "old"
    assert (await read(team.bank, "activeContext.md")).name == "activeContext.md"
    written = await write(team.bank, "activeContext.md", "new", WriteOptions(compute_etag(b"old")))
    assert written.name == "active-context.md"
    assert team.names() == ["active-context.md"]


async def test_the_name_of_today_wins_and_the_old_file_stays(team: Banking) -> None:
    team.put("activeContext.md", "old")
    team.put("active-context.md", "new")
    assert (await read(team.bank, "activeContext.md")).text == "new"
    await write(team.bank, "activeContext.md", "newer")
    assert (team.get("activeContext.md"), team.get("active-context.md")) == ("old", "newer")


async def test_a_hand_made_name_is_kept_however_it_is_spelled(team: Banking) -> None:
    team.put("README.md", "mine")
    assert (await read(team.bank, "readme.md")).text == "mine"
    assert (await write(team.bank, "README.md", "ours")).name == "README.md"
    await write(team.bank, "readme.md", "yours")
    # A disk that knows no case may keep the name that was used last.
    assert [name.lower() for name in team.names()] == ["readme.md"]
    assert (await read(team.bank, "README.md")).text == "yours"


async def test_new_names_are_settled_in_kebab_case(team: Banking) -> None:
    assert await settle_name(team.bank, "myNotes.md") == "my-notes.md"
    assert await find_name(team.bank, "myNotes.md") is None
    with pytest.raises(Refused):
        await settle_name(team.bank, "pro\u200bgress.md")


async def test_a_file_with_an_odd_name_can_still_be_read(team: Banking) -> None:
    team.put("µService.md", "text")
    assert (await read(team.bank, "µService.md")).text == "text"


async def test_a_folder_and_hidden_files_are_no_files_of_the_bank(team: Banking) -> None:
    (team.folder / "folder.md").mkdir()
    team.put(".hidden.md", "x")
    with pytest.raises(FileNotFound):
        await read(team.bank, "folder.md")
    assert await list_file_names(team.bank) == []


async def test_an_edit_that_raises_leaves_every_file_as_it_was(team: Banking) -> None:
    team.put("activeContext.md", "old")

    def fails(_: str | None) -> str:
        raise Refused("No.")

    with pytest.raises(Refused):
        await edit(team.bank, {"active-context.md": lambda _: "new", "b.md": fails})
    assert team.names() == ["activeContext.md"]
    assert team.get("activeContext.md") == "old"


@pytest.mark.parametrize("writes", [0, 1, 2])
async def test_an_edit_that_finds_no_room_puts_everything_back(team: Banking, writes: int) -> None:
    team.put("activeContext.md", "old")
    team.put("b.md", "b")
    with pytest.raises(StorageFull) as caught:
        await edit(
            filling(team.bank, writes), {name: lambda _: "new" for name in ("active-context.md", "b.md", "c.md")}
        )
    assert "changed" not in caught.value.facts
    assert team.names() == ["activeContext.md", "b.md"]
    assert (team.get("activeContext.md"), team.get("b.md")) == ("old", "b")


async def test_a_write_that_finds_no_room_keeps_the_old_name(team: Banking) -> None:
    team.put("activeContext.md", "old")
    with pytest.raises(StorageFull):
        await write(filling(team.bank, 0), "active-context.md", "new")
    assert team.names() == ["activeContext.md"]


async def test_what_an_edit_does_not_change_is_not_written(team: Banking) -> None:
    team.put("a.md", "text")
    written = await edit(filling(team.bank, 0), {"a.md": lambda text: text, "b.md": lambda text: text})
    assert written == {}


async def test_edits_at_the_same_time_lose_nothing(team: Banking) -> None:
    await asyncio.gather(*(edit(team.bank, {"a.md": lambda text, n=n: f"{text or ''}{n}\n"}) for n in range(20)))
    assert sorted(map(int, team.get("a.md").split())) == list(range(20))


async def test_a_missing_file_is_no_text(team: Banking) -> None:
    with pytest.raises(FileNotFound):
        await read(team.bank, "a.md")


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200).filter(lambda data: b"\0" not in data))
async def test_an_edit_keeps_what_it_does_not_touch(team: Banking, data: bytes) -> None:
    assume(detect_encoding(data) is None)
    team.put("a.md", data)
    await edit(team.bank, {"a.md": lambda text: f"{text}added\r\n"})
    assert (team.folder / "a.md").read_bytes() == data + b"added\r\n"


@pytest.mark.parametrize("writes", [1, 2, 3])
async def test_a_call_that_is_cancelled_leaves_every_file_as_it_was(team: Banking, writes: int) -> None:
    team.put("decisionLog.md", "one")
    team.put("progress.md", "two")
    before = {name: team.get(name) for name in team.names()}
    files = Cancelling(team.bank.files, writes)
    bank = replace(team.bank, files=cast(FileStore, files))
    names = ("decision-log.md", "progress.md", "active-context.md")
    changes = dict.fromkeys(names, lambda text: f"{text or ''} more")
    files.asking = asyncio.create_task(edit(bank, changes))
    with pytest.raises(asyncio.CancelledError):
        await files.asking
    assert {name: team.get(name) for name in team.names()} == before
    await edit(team.bank, changes)
    assert {name: team.get(name) for name in team.names()} == {
        "active-context.md": " more",
        "decision-log.md": "one more",
        "progress.md": "two more",
    }


async def test_a_write_that_is_cancelled_comes_to_its_end(team: Banking) -> None:
    team.put("decisionLog.md", "one")
    files = Cancelling(team.bank.files, 1)
    bank = replace(team.bank, files=cast(FileStore, files))
    files.asking = asyncio.create_task(write(bank, "decision-log.md", "two"))
    with pytest.raises(asyncio.CancelledError):
        await files.asking
    assert (team.names(), team.get("decision-log.md")) == (["decision-log.md"], "two")


@pytest.mark.parametrize("target", [".git/config", "graph/graph.jsonl", "notes.txt", ".env.md"])
async def test_a_link_makes_no_file_of_what_has_no_name_of_one(team: Banking, target: str) -> None:
    team.put(target, "theirs")
    (team.folder / "cfg.md").symlink_to(target)
    (team.folder / "again.md").symlink_to("cfg.md")
    for name in ("cfg.md", "again.md", "CFG.md"):
        for attempt in (
            read(team.bank, name),
            write(team.bank, name, "ours"),
            edit(team.bank, {name: lambda _: "ours"}),
        ):
            with pytest.raises(Refused) as caught:
                await attempt
            assert f'is a link to "{target}", which is not a file of the bank.' in str(caught.value)
    assert await list_file_names(team.bank) == [n for n in [target] if n == "notes.txt"]
    assert team.get(target) == "theirs"


async def test_a_link_to_another_file_of_the_bank_is_followed(team: Banking) -> None:
    team.put("progress.md", "one")
    (team.folder / "log.md").symlink_to("progress.md")
    assert (await read(team.bank, "log.md")).text == "one"
    await write(team.bank, "log.md", "two")
    assert (team.folder / "log.md").is_symlink()
    assert team.get("progress.md") == "two"


async def test_a_file_is_changed_while_others_have_their_turn(team: Banking) -> None:
    team.put("a.md", "x")
    where: list[threading.Thread] = []

    def change(text: str | None) -> str:
        where.append(threading.current_thread())
        return f"{text}y"

    await edit(team.bank, {"a.md": change})
    assert where[0] is not threading.main_thread()
    assert team.get("a.md") == "xy"


async def test_a_locked_edit_is_one_call_into_a_thread(team: Banking) -> None:
    team.put("activeContext.md", "old")
    team.put("b.md", "b")
    threads = CountingThreads()
    asyncio.get_running_loop().set_default_executor(threads)
    names = ("active-context.md", "b.md", "c.md")
    written = await edit(team.bank, dict.fromkeys(names, lambda text: f"{text} more"))
    assert [file.text for file in written.values()] == ["old more", "b more", "None more"]
    assert threads.calls == 1
    await write(team.bank, "b.md", "whole", WriteOptions(written["b.md"].etag))
    assert threads.calls == 2
    await prepare_core_files(team.bank)
    assert threads.calls == 3
