"""Backups hold everything, are found again, and say whether they are whole."""

import asyncio
import re
from pathlib import Path

import pytest

from bank_backups import GRAPH, backing_up, backing_up_far_away, state_of
from everkept.core.sessions import Session, ToolCall
from everkept.errors import BankNotFound, InvalidInput, NotFound, StorageFull, Unavailable
from everkept.families.bank import bank_files
from everkept.families.bank.bank_backups import MANIFEST_NAME
from everkept.families.bank.graph.graph_folder import LOCK as GRAPH_LOCK
from records import DAY_ONE

FIRST = "memory-bank-backup-2023-11-14T22-13-20-000Z"


async def test_a_backup_holds_every_file_and_the_graph_as_it_is_now(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "# Progress\r\n")
        bank.put("notes/deep/er/what.bin", b"\xff\x00")
        bank.put(".hidden", "kept too")
        bank.graph.state = "Ada"
        made = await bank("create_backup")
        copy = state_of(Path(made["backupPath"]))
        assert copy.pop(MANIFEST_NAME)
        assert copy == bank.state()
        assert copy[GRAPH] == b"marker Ada"
        assert made["fileCount"] == 4
        assert made["bytes"] == sum(map(len, copy.values()))


async def test_the_answer_is_what_the_contract_promises(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "text")
        made = await bank("create_backup")
        assert made["success"] is True
        assert made["message"] == "Backup created successfully"
        assert re.fullmatch(r"memory-bank-backup-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z", Path(made["backupPath"]).name)
        assert made["timestamp"] == "2023-11-14T22:13:21.000Z"
        listed = await bank("list_backups")
        (view,) = listed["backups"]
        assert (view["id"], view["timestamp"], view["path"]) == (made["id"], made["timestamp"], made["backupPath"])
        assert listed["metadata"]["count"] == 1
        only_listed = await bank("create_backup", listOnly=True)
        assert only_listed["backups"] == listed["backups"]


async def test_working_files_and_version_control_are_left_out(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "text")
        bank.put(".everkept-bank.lock", "{}")
        bank.put(".progress.md.0123abcd.tmp", "half")
        bank.put(".git/HEAD", "ref: refs/heads/main")
        (bank.folder / ".everkept-bank.lock").unlink()
        made = await bank("create_backup")
        assert set(state_of(Path(made["backupPath"]))) == {"progress.md", MANIFEST_NAME}


async def test_a_link_that_leads_out_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside.md"
    outside.write_text("secret", encoding="utf-8")
    async with backing_up(tmp_path / "home") as bank:
        bank.put("progress.md", "text")
        (bank.folder / "link.md").symlink_to(outside)
        (bank.folder / "sub").mkdir()
        (bank.folder / "sub" / "gone.md").symlink_to("nowhere")
        made = await bank("create_backup")
        assert set(state_of(Path(made["backupPath"]))) == {"progress.md", MANIFEST_NAME}
        (warning,) = made["warnings"]
        assert warning["code"] == "not_backed_up"
        assert warning["message"].startswith("Omitted 2 entries ")
        assert warning["message"].endswith(": link.md, sub/gone.md.")


async def test_two_backups_in_one_millisecond_have_two_names(tmp_path: Path) -> None:
    async with backing_up(tmp_path, clock=lambda: DAY_ONE) as bank:
        bank.put("progress.md", "text")
        ids = [made["id"] for made in [await bank("create_backup"), await bank("create_backup")]]
        assert ids == [FIRST, "memory-bank-backup-2023-11-14T22-13-20-001Z"]


async def test_two_backups_at_once_are_both_whole(tmp_path: Path) -> None:
    async with backing_up(tmp_path, clock=lambda: DAY_ONE) as bank:
        for number in range(40):
            bank.put(f"file-{number}.md", "x" * number)
        await asyncio.gather(*(bank("create_backup") for _ in range(3)))
        listed = await bank("list_backups", verify=True)
        assert [view["verified"] for view in listed["backups"]] == ["whole"] * 3
        assert {view["fileCount"] for view in listed["backups"]} == {40}


async def test_two_banks_share_a_folder_of_backups(tmp_path: Path) -> None:
    shelf = str(tmp_path / "shelf")
    async with (
        backing_up(tmp_path / "one", clock=lambda: DAY_ONE) as one,
        backing_up(tmp_path / "two", clock=lambda: DAY_ONE) as two,
    ):
        for number in range(20):
            one.put(f"file-{number}.md", "one")
            two.put(f"file-{number}.md", "two")
        calls = [bank("create_backup", backupDir=shelf) for bank in (one, two, one, two)]
        made = await asyncio.gather(*calls)
        assert len({backup["id"] for backup in made}) == 4
        listed = await one("list_backups", backupDir=shelf, verify=True)
        assert [view["verified"] for view in listed["backups"]] == ["whole"] * 4
        assert {view["bank"] for view in listed["backups"]} == {str(one.folder), str(two.folder)}


async def test_nobody_writes_to_the_bank_while_it_is_copied(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("a.md", "1")
        bank.put("b.md", "1")

        async def write_both() -> None:
            for number in range(2, 30):
                await bank_files.edit(
                    bank.banking.bank, {"a.md": lambda _, n=number: str(n), "b.md": lambda _, n=number: str(n)}
                )

        writing = asyncio.create_task(write_both())
        made = [await bank("create_backup") for _ in range(5)]
        await writing
        for backup in made:
            copy = state_of(Path(backup["backupPath"]))
            assert copy["a.md"] == copy["b.md"]


async def test_no_line_of_the_graph_is_copied_in_part(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "text")
        bank.put(GRAPH, "a line\nhalf a")
        files = bank.banking.bank.files
        async with files.lock(GRAPH_LOCK):
            backup = asyncio.create_task(bank("create_backup"))
            await asyncio.wait([backup], timeout=0.3)  # as long as it takes where nobody waits
            await files.append(GRAPH, b" line\n")
        copy = state_of(Path((await backup)["backupPath"]))
        assert copy[GRAPH] == b"a line\nhalf a line\n"


@pytest.mark.parametrize("lasting", [False, True], ids=["one change fails", "all fail from then"])
async def test_a_backup_is_there_as_a_whole_or_not_at_all(tmp_path: Path, lasting: bool) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "text")
        bank.put("graph/other.txt", "more")
        failures = 0
        while True:
            bank.fuse.left, bank.fuse.lasting = failures, lasting
            try:
                await bank("create_backup")
                break
            except StorageFull:
                failures += 1
            bank.fuse.left = None
            views = (await bank("list_backups", verify=True))["backups"]
            assert [view["verified"] for view in views] == []
            if not lasting:
                assert bank.backups() == []
        # Two files, the manifest and the name; and clearing away what the last one left.
        assert failures == (5 if lasting else 4)
        bank.fuse.left = None
        await bank("create_backup")
        assert [path.name[0] for path in bank.backups()] == ["m", "m"]


async def test_what_a_crash_left_is_cleared_by_the_next_backup(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "text")
        half = bank.home / f".{FIRST}.partial"
        half.mkdir()
        (half / "progress.md").write_text("te", encoding="utf-8")
        assert (await bank("list_backups"))["backups"] == []
        made = await bank("create_backup")
        assert bank.backups() == [Path(made["backupPath"])]


async def test_a_copy_that_reads_back_otherwise_is_no_backup(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "text")
        bank.fuse.spoiled = ".partial/progress.md"
        with pytest.raises(Unavailable, match="differs from the original"):
            await bank("create_backup")
        assert bank.backups() == []


async def test_a_graph_that_cannot_be_brought_up_to_date_is_a_warning(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "text")
        bank.put(GRAPH, "broken")
        bank.graph.failing = ["follow"]
        made = await bank("create_backup")
        assert [warning["code"] for warning in made["warnings"]] == ["graph_file_behind"]
        assert state_of(Path(made["backupPath"]))[GRAPH] == b"broken"


async def test_a_bank_without_files_is_not_backed_up(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        with pytest.raises(NotFound, match="no files to back up"):
            await bank("create_backup")
        assert bank.backups() == []


async def test_without_a_bank_and_backups_there_is_nothing_to_list_or_make(tmp_path: Path) -> None:
    async with backing_up(tmp_path, made=False) as bank:
        for tool in ("create_backup", "list_backups"):
            with pytest.raises(BankNotFound) as caught:
                await bank(tool)
            assert caught.value.facts["expectedPath"] == str(bank.folder)


async def test_backups_in_another_folder_are_found_there(tmp_path: Path) -> None:
    async with backing_up(tmp_path / "home") as bank:
        bank.put("progress.md", "old")
        shelf = tmp_path / "shelf" / "new"
        made = await bank("create_backup", backupDir=str(shelf))
        assert Path(made["backupPath"]).parent == shelf
        assert "backupDir" in made["note"]
        assert (await bank("list_backups"))["backups"] == []
        (view,) = (await bank("list_backups", backupDir=str(shelf)))["backups"]
        bank.put("progress.md", "new")
        await bank("restore_backup", backupId=view["id"], backupDir=str(shelf))
        assert bank.get("progress.md") == "old"


async def test_a_folder_of_backups_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    async with backing_up(tmp_path / "home") as bank:
        bank.put("progress.md", "text")
        shelf = tmp_path / "nowhere"
        with pytest.raises(NotFound, match="which does not exist") as caught:
            await bank("list_backups", backupDir=str(shelf))
        assert str(shelf) in caught.value.message
        assert not shelf.exists()


async def test_a_bank_that_cannot_be_written_is_backed_up_elsewhere_with_a_warning(tmp_path: Path) -> None:
    async with backing_up(tmp_path / "home") as bank:
        bank.put("progress.md", "text")
        bank.fuse.without_lock = str(bank.folder)
        made = await bank("create_backup", backupDir=str(tmp_path / "shelf"))
        assert [warning["code"] for warning in made["warnings"]] == ["bank_not_locked"]
        assert state_of(Path(made["backupPath"]))["progress.md"] == b"text"


async def test_a_relative_folder_of_backups_begins_at_the_start(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "text")
        made = await bank("create_backup", backupDir="kept/here")
        assert Path(made["backupPath"]).parent == tmp_path / "kept" / "here"


@pytest.mark.parametrize("inside", ["", "sub", "sub/deeper"])
async def test_backups_do_not_lie_inside_the_bank(tmp_path: Path, inside: str) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "text")
        with pytest.raises(InvalidInput, match="inside the memory bank"):
            await bank("create_backup", backupDir=str(bank.folder / inside))
        assert bank.banking.names() == ["progress.md"]


async def test_backups_of_the_public_server_are_listed_with_their_times(tmp_path: Path) -> None:
    names = {
        "memory-bank-backup-2026-02-13T10-30-00-000Z": "2026-02-13T10:30:00.000Z",
        "memory-bank-backup-2026-02-13T10-30-00-250": "2026-02-13T10:30:00.250Z",
        "memory-bank-backup-2026-02-14T09-00-00": "2026-02-14T09:00:00.000Z",
    }
    async with backing_up(tmp_path) as bank:
        for name in names:
            (bank.home / name).mkdir()
        for other in ("memory-bank-backup-old", "memory-bank-backup-2026-02-13T1x", "notes"):
            (bank.home / other).mkdir()
        (bank.home / "memory-bank-backup-2026-02-15T09-00-00").write_text("", encoding="utf-8")
        views = (await bank("list_backups", verify=True))["backups"]
        assert {view["id"]: view["timestamp"] for view in views} == names
        assert [view["id"] for view in views] == list(names)[::-1]
        assert {view["verified"] for view in views} == {"unknown"}


async def test_verifying_names_what_is_damaged_in_which_backup(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        for name in ("a.md", "b.md", "sub/c.txt"):
            bank.put(name, name)
        made = [Path((await bank("create_backup"))["backupPath"]) for _ in range(3)]
        (made[0] / "a.md").write_text("A.md", encoding="utf-8")
        (made[0] / "sub" / "c.txt").unlink()
        (made[1] / MANIFEST_NAME).write_text('{"format": 1', encoding="utf-8")
        views = (await bank("list_backups", verify=True))["backups"]
        assert [view["verified"] for view in views] == ["whole", "damaged", "damaged"]
        assert views[2]["problems"] == ["a.md (altered)", "sub/c.txt (missing)"]
        assert views[1]["problems"] == [f"{MANIFEST_NAME} (it is not JSON)"]
        unchecked = (await bank("list_backups"))["backups"]
        assert [view["verified"] for view in unchecked] == ["unchecked", "damaged", "unchecked"]


async def test_a_call_may_name_another_store(tmp_path: Path) -> None:
    from everkept.families.bank.banks import StoreRegistration

    async with backing_up(tmp_path / "one") as bank:
        other = tmp_path / "two" / "memory-bank"
        other.mkdir(parents=True)
        (other / "progress.md").write_text("other", encoding="utf-8")
        await bank.banking.banks.registry.put(StoreRegistration("two", str(other.parent), "local", DAY_ONE, DAY_ONE))
        made = await bank("create_backup", storeId="two")
        assert Path(made["backupPath"]).parent == other.parent
        with pytest.raises(NotFound, match="not found in registry"):
            await bank("list_backups", storeId="three")


async def test_a_bank_on_another_machine_is_backed_up_there_and_restored(tmp_path: Path) -> None:
    async with backing_up_far_away(tmp_path) as bank:
        bank.put("notes/deep.md", "old")
        bank.put("progress.md", "old")
        bank.graph.state = "Ada"
        made = await bank("create_backup")
        assert made["backupPath"].startswith("ssh://")
        assert made["backupPath"].endswith(f"/project/{made['id']}")
        before = bank.state()
        bank.put("progress.md", "new")
        bank.graph.state = "Grace"
        (view,) = (await bank("list_backups", verify=True))["backups"]
        assert (view["id"], view["verified"]) == (made["id"], "whole")
        answer = await bank("restore_backup", backupId=made["id"])
        assert bank.state() == before
        assert bank.graph.state == "Ada"
        assert answer["restoredCount"] == 3
        kept = [path.name for path in bank.backups() if path.is_dir()]
        assert kept == [made["id"], answer["preRestoreBackupPath"].rpartition("/")[2]]


@pytest.mark.thorough
async def test_ten_thousand_files_and_a_large_one_are_copied_with_progress(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        for number in range(10_000):
            bank.put(f"part-{number % 20}/note-{number}.md", f"note {number}")
        bank.put("large.json", b"x" * 50_000_000)
        said: list[tuple[float, float | None]] = []

        async def report(done: float, total: float | None, _message: str | None) -> None:
            said.append((done, total))

        call = ToolCall(Session(), "create_backup", report)
        made = (await bank.banking.tools.get("create_backup").run(call, {})).facts
        assert made["fileCount"] == 10_001
        assert said == sorted(said)
        assert said[-1] == (20_002, 20_002)
        assert 100 < len(said) < 1_000
