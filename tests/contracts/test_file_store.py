import asyncio
import os
import time
from pathlib import Path

import pytest

from everkept.core.files import FileInfo
from everkept.errors import Conflict, InvalidInput, NotFound, Refused, StoreBusy
from everkept.files.lease_lock import LockTerms
from file_stores import Filing, cancel_at_once, outcome
from path_attacks import ATTACKS

MEGABYTE = 1_000_000


def paths(found: list[FileInfo]) -> list[str]:
    return [info.path for info in found]


async def test_a_folder_that_is_missing_holds_nothing(files: Filing) -> None:
    store = files.store
    assert await store.read_info() is None
    assert await store.read_info("x.md") is None
    assert await outcome(store.list()) == "not_found"
    assert await outcome(store.read("x.md")) == "not_found"
    assert await outcome(store.rename("x.md", "y.md")) == "not_found"
    await store.remove("x.md")
    assert not files.folder.exists()


async def test_an_address_is_as_people_write_it(files: Filing) -> None:
    if files.store.is_remote:
        assert files.store.address.startswith("ssh://")
        assert files.store.address.endswith(f"/{files.folder.name}")
    else:
        assert files.store.address == str(files.folder)


@pytest.mark.parametrize("data", [b"", b"x", b"\0\xff\r\n\n", "ä 🎉".encode(), b"x" * 100_000])
async def test_what_is_written_is_read(files: Filing, data: bytes) -> None:
    await files.store.write("x.md", data)
    assert await files.store.read("x.md") == data
    assert files.files() == {"x.md": data}


async def test_a_write_makes_folders_and_replaces_what_is_there(files: Filing) -> None:
    await files.store.write("a/b/x.md", b"a long first text")
    await files.store.write("a/b/x.md", b"second")
    assert files.files() == {"a/b/x.md": b"second"}


async def test_several_files_are_written_in_one_call(files: Filing) -> None:
    files.put("x.md", b"old")
    contents = {"x.md": b"new", "a/y.md": b"y", "a/b/z.md": b"", "w.md": b"w"}
    await files.store.write_all(contents)
    assert files.files() == contents
    await files.store.write_all({})
    assert files.files() == contents


@pytest.mark.parametrize("last", ["a", "x.md/y.md", "../y.md", ""])
async def test_a_file_that_cannot_be_written_is_named_among_several(files: Filing, last: str) -> None:
    files.put("a/x.md", b"old")
    files.put("x.md", b"old")
    code = "conflict" if last in ("a", "x.md/y.md") else "refused"
    assert await outcome(files.store.write_all({"a/x.md": b"new", last: b"new"})) == code
    written = files.files()
    assert written["x.md"] == b"old"
    assert set(written) == {"a/x.md", "x.md"}


async def test_a_file_is_read_from_a_byte_on(files: Filing) -> None:
    await files.store.write("x.md", b"0123456789")
    assert await files.store.read("x.md", start=7) == b"789"
    assert await files.store.read("x.md", start=10) == b""
    assert await files.store.read("x.md", start=99) == b""


async def test_what_is_appended_comes_last(files: Filing) -> None:
    await files.store.append("a/log.jsonl", b"one\n")
    await files.store.append("a/log.jsonl", b"")
    await files.store.append("a/log.jsonl", b"two\n")
    assert files.files() == {"a/log.jsonl": b"one\ntwo\n"}


async def test_what_another_program_wrote_is_read(files: Filing) -> None:
    await files.store.write("x.md", b"ours")
    files.put("x.md", b"edited")
    files.put("new/y.md", b"added")
    assert await files.store.read("x.md") == b"edited"
    assert await files.store.read("new/y.md") == b"added"


async def test_a_missing_file_is_named(files: Filing) -> None:
    await files.store.write("there.md", b"")
    for missing in ("x.md", "a/x.md", "there.md/x.md"):
        with pytest.raises(NotFound) as caught:
            await files.store.read(missing)
        assert caught.value.facts["kind"] == "file"
        assert caught.value.facts["name"] == missing
        assert await files.store.read_info(missing) is None
        assert await outcome(files.store.rename(missing, "y.md")) == "not_found"
        await files.store.remove(missing)


async def test_a_file_says_its_size_and_when_it_changed(files: Filing) -> None:
    before = int(time.time()) * 1_000_000
    await files.store.write("a/x.md", b"12345")
    info = await files.store.read_info("a/x.md")
    assert info is not None
    assert (info.path, info.name, info.size, info.is_folder) == ("a/x.md", "x.md", 5, False)
    assert before - 2_000_000 <= info.modified_at <= int(time.time() + 2) * 1_000_000
    folder = await files.store.read_info("a")
    assert folder is not None
    assert (folder.path, folder.size, folder.is_folder) == ("a", 0, True)
    root = await files.store.read_info()
    assert root is not None
    assert (root.path, root.is_folder) == ("", True)


async def test_a_list_has_the_entries_of_one_folder_by_name(files: Filing) -> None:
    for path in ("b.md", "a.md", "Z.md", "ä.md", ".hidden", "sub/x.md", "sub/deeper/y.md"):
        await files.store.write(path, b"12")
    found = await files.store.list()
    assert paths(found) == [".hidden", "Z.md", "a.md", "b.md", "sub", "ä.md"]
    assert [info.path for info in found if info.is_folder] == ["sub"]
    assert {info.size for info in found if not info.is_folder} == {2}
    assert paths(await files.store.list("sub")) == ["sub/deeper", "sub/x.md"]
    for info in found:
        assert await files.store.read_info(info.path) == info
    for missing in ("nowhere", "a.md"):
        with pytest.raises(NotFound):
            await files.store.list(missing)


async def test_a_survey_has_the_names_that_a_list_has(files: Filing) -> None:
    for path in ("b.md", "a.md", ".hidden", "sub/x.md", "a:b.md", ".x.md.0123abcd.tmp"):
        files.put(path)
    (files.folder / "link.md").symlink_to("sub/x.md")
    (files.folder / "out.md").symlink_to(files.folder.parent)
    seen = await files.store.survey()
    assert (seen.files, seen.folders) == ([".hidden", "a.md", "b.md", "link.md"], ["sub"])
    assert (seen.links, seen.unreachable) == ({"link.md": "sub/x.md"}, ["a:b.md", "out.md"])
    assert seen.newest is None
    assert sorted(seen.files + seen.folders) == [info.name for info in await files.store.list()]
    for missing in ("nowhere", "a.md"):
        with pytest.raises(NotFound):
            await files.store.survey(missing)


async def test_a_survey_knows_the_newest_change_to_what_is_not_hidden(files: Filing) -> None:
    for second, path in enumerate(["x.md", "sub/y.md", "y.md", ".hidden", "sub/late.md"], 1):
        os.utime(files.put(path), (second, second))
    os.utime(files.folder / "sub", (1, 1))
    assert (await files.store.survey(with_newest=True)).newest == 3_000_000
    (files.folder / "x.md").write_bytes(b"")
    os.utime(files.folder / "x.md", (9, 9))
    assert (await files.store.survey(with_newest=True)).newest == 9_000_000
    os.utime(files.folder / "sub", (11, 11))
    assert (await files.store.survey(with_newest=True)).newest == 11_000_000
    for path in ("sub", ".hidden"):
        await files.store.remove(path)
    for path in ("x.md", "y.md"):
        await files.store.remove(path)
    assert (await files.store.survey(with_newest=True)).newest is None


async def test_what_no_path_can_reach_is_not_listed(files: Filing) -> None:
    files.put("x.md")
    for name in ("a:b.md", "con.md", "what?.md", "tab\t.md", ".x.md.0123abcd.tmp"):
        files.put(name)
    assert paths(await files.store.list()) == ["x.md"]


async def test_a_removed_folder_takes_all_that_is_in_it(files: Filing) -> None:
    for path in ("a/x.md", "a/b/c/y.md", "ab.md"):
        await files.store.write(path, b"")
    await files.store.remove("a")
    await files.store.remove("a")
    assert await files.store.read_info("a") is None
    await files.store.remove("ab.md")
    assert files.files() == {}
    assert await files.store.list() == []


async def test_files_and_folders_are_renamed(files: Filing) -> None:
    await files.store.write("a/x.md", b"x")
    await files.store.rename("a/x.md", "new/y.md")
    await files.store.write("a/z.md", b"z")
    await files.store.rename("a", "b")
    assert files.files() == {"new/y.md": b"x", "b/z.md": b"z"}
    assert await files.store.read_info("a") is None


async def test_a_rename_replaces_nothing(files: Filing) -> None:
    for path in ("x.md", "y.md", "a/x.md", "b/x.md"):
        await files.store.write(path, path.encode())
    await files.store.make_folder("empty")
    before = files.files()
    for path, to in (
        ("x.md", "y.md"),
        ("x.md", "x.md"),
        ("x.md", "empty"),
        ("x.md", "a"),
        ("a", "b"),
        ("a", "empty"),
        ("a", "x.md"),
        ("x.md", "y.md/z.md"),
    ):
        with pytest.raises(Conflict):
            await files.store.rename(path, to)
    with pytest.raises(NotFound):
        await files.store.rename("nowhere", "made/z.md")
    with pytest.raises(InvalidInput):
        await files.store.rename("a", "a/inside")
    assert files.files() == before
    assert paths(await files.store.list()) == ["a", "b", "empty", "x.md", "y.md"]


async def test_folders_are_made_with_those_above(files: Filing) -> None:
    await files.store.make_folder()
    await files.store.make_folder()
    await files.store.make_folder("a/b")
    await files.store.make_folder("a/b")
    assert paths(await files.store.list("a")) == ["a/b"]
    await files.store.write("x.md", b"x")
    for path in ("x.md", "x.md/y"):
        with pytest.raises(Conflict):
            await files.store.make_folder(path)
    assert files.files() == {"x.md": b"x"}


async def test_a_file_is_no_folder_and_a_folder_no_file(files: Filing) -> None:
    await files.store.write("x.md", b"x")
    await files.store.make_folder("a")
    for path in ("a", "x.md/y.md"):
        assert await outcome(files.store.write(path, b"new")) == "conflict"
        assert await outcome(files.store.append(path, b"new")) == "conflict"
    assert await outcome(files.store.read("a")) == "not_found"
    assert files.files() == {"x.md": b"x"}


CALLS = ["read", "write", "append", "read_info", "list", "remove", "rename from", "rename to", "make"]


async def called(files: Filing, call: str, path: str) -> object:
    store = files.store
    match call:
        case "write" | "append":
            return await getattr(store, call)(path, b"attack")
        case "rename from":
            return await store.rename(path, "stolen.md")
        case "rename to":
            return await store.rename("x.md", path)
        case "make":
            return await store.make_folder(path)
        case _:
            return await getattr(store, call)(path)


@pytest.mark.parametrize("call", CALLS)
async def test_no_path_leads_out_by_its_form(files: Filing, call: str) -> None:
    files.put("x.md", b"x")
    outside = files.folder.parent / "outside.md"
    outside.write_bytes(b"secret")
    attacks = [*ATTACKS, str(outside), "../outside.md", "a/../../outside.md"]
    for path in attacks:
        with pytest.raises(Refused):
            await called(files, call, path)
    assert files.files() == {"x.md": b"x"}
    assert outside.read_bytes() == b"secret"


@pytest.mark.parametrize("call", ["read", "write", "append", "remove", "rename from", "rename to"])
async def test_the_folder_itself_is_no_file(files: Filing, call: str) -> None:
    files.put("x.md", b"x")
    with pytest.raises(Refused):
        await called(files, call, "")
    assert files.files() == {"x.md": b"x"}


@pytest.mark.parametrize("call", CALLS)
async def test_no_path_leads_out_through_a_link(files: Filing, call: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_bytes(b"secret")
    files.put("x.md", b"x")
    links = {
        "file.md": outside / "secret.md",
        "folder": outside,
        "dangling.md": outside / "new.md",
        "chain.md": files.folder / "file.md",
        "up": Path(".."),
        "sideways.md": Path("../outside/secret.md"),
    }
    for name, target in links.items():
        (files.folder / name).symlink_to(target)
    for path in (*links, "folder/secret.md", "folder/new.md", "up/outside/secret.md"):
        with pytest.raises(Refused):
            await called(files, call, path)
    assert paths(await files.store.list()) == ["x.md"]
    assert [path.name for path in sorted(outside.rglob("*"))] == ["secret.md"]
    assert (outside / "secret.md").read_bytes() == b"secret"
    assert (files.folder / "x.md").read_bytes() == b"x"


async def test_a_link_inside_leads_to_its_target(files: Filing) -> None:
    files.put("real/x.md", b"old")
    (files.folder / "link.md").symlink_to("real/x.md")
    (files.folder / "folder").symlink_to("real")
    (files.folder / "coming.md").symlink_to("real/new.md")
    assert await files.store.read("link.md") == b"old"
    await files.store.write("link.md", b"new")
    await files.store.append("folder/x.md", b"er")
    await files.store.write("coming.md", b"made")
    assert (files.folder / "link.md").is_symlink()
    assert (files.folder / "real" / "x.md").read_bytes() == b"newer"
    assert (files.folder / "real" / "new.md").read_bytes() == b"made"
    info = await files.store.read_info("link.md")
    assert info is not None
    assert (info.path, info.size) == ("link.md", 5)
    assert paths(await files.store.list("folder")) == ["folder/new.md", "folder/x.md"]
    assert paths(await files.store.list()) == ["coming.md", "folder", "link.md", "real"]


async def test_a_link_is_removed_and_renamed_itself(files: Filing) -> None:
    files.put("real/x.md", b"x")
    (files.folder / "link.md").symlink_to("real/x.md")
    (files.folder / "folder").symlink_to("real")
    await files.store.rename("link.md", "moved.md")
    assert (files.folder / "moved.md").is_symlink()
    await files.store.remove("moved.md")
    await files.store.remove("folder")
    assert paths(await files.store.list()) == ["real"]
    assert files.files() == {"real/x.md": b"x"}


async def test_links_that_lead_nowhere_or_in_a_circle_are_no_entries(files: Filing) -> None:
    files.put("sub/x.md")
    (files.folder / "one").symlink_to("two")
    (files.folder / "two").symlink_to("one")
    (files.folder / "nowhere.md").symlink_to("missing.md")
    (files.folder / "sub" / "self").symlink_to(".")
    (files.folder / "sub" / "root").symlink_to("..")
    assert paths(await files.store.list()) == ["sub"]
    assert paths(await files.store.list("sub")) == ["sub/x.md"]
    assert (await files.store.survey()).unreachable == ["nowhere.md", "one", "two"]
    assert (await files.store.survey("sub")).unreachable == ["root", "self"]
    assert await outcome(files.store.read("one")) == "refused"
    assert await outcome(files.store.read("nowhere.md")) == "not_found"
    assert await files.store.read_info("nowhere.md") is None


async def test_the_folder_itself_may_be_a_link(files: Filing, tmp_path: Path) -> None:
    files.put("x.md", b"x")
    link = tmp_path / "link"
    link.symlink_to(files.folder)
    store = await files.at(link, LockTerms())
    assert await store.read("x.md") == b"x"
    async with store.lock("bank"):
        await store.write("a/y.md", b"y")
    assert files.files() == {"x.md": b"x", "a/y.md": b"y"}


async def test_working_files_are_out_of_reach(files: Filing) -> None:
    async with files.store.lock("bank"):
        (lock,) = [path.name for path in sorted(files.folder.iterdir())]
        assert await files.store.list() == []
        for call in CALLS:
            with pytest.raises(Refused):
                await called(files, call, lock)


async def test_who_reads_while_it_is_written_sees_the_old_or_the_new(files: Filing) -> None:
    states = [bytes([letter]) * 300_000 for letter in b"abc"]
    await files.store.write("x.md", states[0])
    other = await files.another()
    seen: set[bytes] = set()

    async def write() -> None:
        for number in range(12):
            await files.store.write("x.md", states[number % 3])

    writing = asyncio.create_task(write())
    while not writing.done():
        seen.add(await other.read("x.md"))
    await writing
    assert seen <= set(states)


async def test_writers_at_once_leave_one_whole_file(files: Filing) -> None:
    texts = [f"{number:04}".encode() * 1_000 for number in range(20)]
    await asyncio.gather(*(files.store.write("x.md", text) for text in texts))
    assert await files.store.read("x.md") in texts
    assert list(files.files()) == ["x.md"]


async def test_a_large_file_is_written_and_read(files: Filing) -> None:
    data = bytes(range(250)) * (50 * MEGABYTE // 250)
    await files.store.write("large.md", data)
    assert await files.store.read("large.md") == data
    assert await files.store.read("large.md", start=50 * MEGABYTE - 3) == data[-3:]


async def test_ten_thousand_files_are_listed(files: Filing) -> None:
    for number in range(10_000):
        files.put(f"{number:05}.md", b"12345")
    found = await files.store.list()
    assert paths(found) == [f"{number:05}.md" for number in range(10_000)]
    assert {info.size for info in found} == {5}


async def test_a_lock_is_held_by_one_at_a_time(files: Filing) -> None:
    stores = [files.store, await files.another(), await files.another()]
    inside = 0

    async def add(number: int) -> None:
        nonlocal inside
        store = stores[number % 3]
        async with store.lock("bank"):
            inside += 1
            assert inside == 1
            before = await store.read("x.md") if await store.read_info("x.md") else b""
            await store.write("x.md", before + b"%d\n" % number)
            inside -= 1

    await asyncio.gather(*(add(number) for number in range(12)))
    assert sorted(map(int, (await files.store.read("x.md")).split())) == list(range(12))
    assert list(files.files()) == ["x.md"]


async def test_tasks_of_one_store_come_in_the_order_they_asked(files: Filing) -> None:
    order: list[int] = []

    async def take(number: int) -> None:
        async with files.store.lock("bank"):
            order.append(number)

    await asyncio.gather(*(take(number) for number in range(8)))
    assert order == list(range(8))


async def test_locks_of_two_names_do_not_wait_for_each_other(files: Filing) -> None:
    other = await files.another(LockTerms(patience=0.0))
    async with files.store.lock("bank"), other.lock("graph"):
        assert await outcome(other.lock("bank").__aenter__()) == "store_busy"


async def test_who_waits_too_long_is_told_who_holds(files: Filing) -> None:
    other = await files.another(LockTerms(patience=0.02))
    async with files.store.lock("bank"):
        with pytest.raises(StoreBusy) as caught:
            await other.lock("bank").__aenter__()
    assert caught.value.facts["holder"].startswith("process ")
    async with other.lock("bank"):
        pass
    assert files.files() == {}


async def test_an_error_inside_lets_go(files: Filing) -> None:
    async def fail() -> None:
        async with files.store.lock("bank"):
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    assert files.files() == {}


async def test_who_is_cancelled_leaves_no_lock(files: Filing) -> None:
    async def hold(entered: asyncio.Event) -> None:
        async with files.store.lock("bank"):
            entered.set()
            await asyncio.Event().wait()

    entered = asyncio.Event()
    holding = asyncio.create_task(hold(entered))
    await entered.wait()
    other = await files.another()
    for store in (files.store, other):
        waiting = asyncio.create_task(store.lock("bank").__aenter__())
        await asyncio.wait((waiting,), timeout=0.03)
        waiting.cancel()
        assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], BaseException)
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    assert [name for name in files.files() if name.endswith(".lock")] == []
    async with other.lock("bank"):
        pass


async def test_work_runs_under_a_lock_one_at_a_time(files: Filing) -> None:
    stores = [files.store, await files.another(), await files.another()]

    async def add(number: int) -> int:
        store = stores[number % 3]

        async def work() -> int:
            before = await store.read("x.md") if await store.read_info("x.md") else b""
            await store.write("x.md", before + b"%d\n" % number)
            return number

        return await store.run_locked("bank", work)

    assert await asyncio.gather(*map(add, range(12))) == list(range(12))
    assert sorted(map(int, (await files.store.read("x.md")).split())) == list(range(12))
    assert list(files.files()) == ["x.md"]


async def test_work_waits_for_a_lock_that_is_held_elsewhere(files: Filing) -> None:
    other = await files.another(LockTerms(patience=0.02))
    async with files.store.lock("bank"):
        work = other.run_locked("bank", lambda: other.write("x.md", b"x"))
        with pytest.raises(StoreBusy) as caught:
            await work
    assert caught.value.facts["holder"].startswith("process ")
    assert files.files() == {}
    await other.run_locked("bank", lambda: other.write("x.md", b"x"))
    assert files.files() == {"x.md": b"x"}


async def test_work_that_fails_lets_go(files: Filing) -> None:
    async def fail() -> None:
        await files.store.write("x.md", b"x")
        raise LookupError

    with pytest.raises(LookupError):
        await files.store.run_locked("bank", fail)
    assert files.files() == {"x.md": b"x"}
    with pytest.raises(InvalidInput):
        await files.store.run_locked("No name", fail)


async def test_work_of_a_canceled_caller_ends_and_is_undone_under_its_lock(files: Filing) -> None:
    other = await files.another(LockTerms(patience=0.0))
    loop = asyncio.get_running_loop()
    held: list[list[str]] = []

    async def work() -> None:
        await files.store.write("x.md", b"x")
        cancel_at_once(running, loop)
        await files.store.write("y.md", b"y")

    async def undo() -> None:
        held.append(sorted(files.files()))
        await files.store.remove("x.md")

    running = asyncio.create_task(files.store.run_locked("bank", work, undo))
    with pytest.raises(asyncio.CancelledError):
        await running
    assert held == [[".everkept-bank.lock", "x.md", "y.md"]]
    assert files.files() == {"y.md": b"y"}
    await other.run_locked("bank", lambda: other.write("x.md", b"x"), undo)
    assert files.files() == {"x.md": b"x", "y.md": b"y"}


async def test_several_works_give_their_results_in_order(files: Filing) -> None:
    store = files.store
    files.put("x.md", b"x")
    files.put("a/y.md", b"y")

    async def nested() -> bytes:
        [data] = await store.run_all([lambda: store.read("x.md")])
        return data + await store.read("a/y.md")

    works = [lambda: store.read("x.md"), nested, lambda: store.read("a/y.md")]
    assert await store.run_all(works) == [b"x", b"xy", b"y"]
    assert await outcome(store.run_all([*works, lambda: store.read("z.md")])) == "not_found"
    assert await store.run_all([]) == []
