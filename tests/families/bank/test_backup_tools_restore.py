"""A restore sets files and graph to a backup's state, safely or not at all."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bank_backups import GRAPH, BackingUp, backing_up, state_of
from everkept.core.files import is_name
from everkept.core.sessions import Session, ToolCall
from everkept.errors import BankNotFound, InvalidInput, NotFound, Refused, Unavailable
from everkept.families.bank import bank_files
from everkept.families.bank.backup_tools import BackupTools
from everkept.families.bank.bank_backups import MANIFEST_NAME
from everkept.families.bank.graph.graph_events import LOG_PATH
from everkept.families.bank.graph.mirror import GraphMirror
from everkept.families.bank.graph.tools import BankGraphTools
from everkept.families.bank.model import BankOptions
from examples import examples
from memory_bank import bank_in

PUBLIC = "memory-bank-backup-2026-02-13T10-30-00-000"


async def backup(bank: BackingUp) -> str:
    return (await bank("create_backup"))["id"]


async def test_files_and_graph_are_as_they_were_and_others_are_kept(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "old\r\n")
        bank.put("same.md", "same")
        bank.put("sub/deep.txt", b"\xff")
        bank.graph.state = "Ada"
        made = await backup(bank)
        before = bank.state()
        bank.put("progress.md", "new")
        (bank.folder / "sub" / "deep.txt").unlink()
        bank.put("later.md", "written later")
        bank.graph.state = "Grace"
        answer = await bank("restore_backup", backupId=made)
        assert bank.state() == before | {"later.md": b"written later"}
        assert (bank.graph.state, bank.graph.changes) == ("Ada", 1)
        assert answer["success"] is True
        assert answer["message"] == f"Successfully restored from backup: {made}"
        assert answer["restoredFiles"] == [GRAPH, "progress.md", "same.md", "sub/deep.txt"]
        assert (answer["restoredCount"], answer["changedCount"]) == (4, 3)
        assert answer["keptFiles"] == ["later.md"]
        assert "warnings" not in answer


async def test_the_safety_backup_takes_the_restore_back(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "old")
        bank.graph.state = "Ada"
        made = await backup(bank)
        bank.put("progress.md", "new")
        bank.graph.state = "Grace"
        answer = await bank("restore_backup", backupId=made)
        safety = Path(answer["preRestoreBackupPath"])
        assert state_of(safety)["progress.md"] == b"new"
        await bank("restore_backup", backupId=safety.name)
        assert bank.get("progress.md") == "new"
        assert bank.graph.state == "Grace"


async def test_without_a_safety_backup_none_is_made(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "old")
        made = await backup(bank)
        answer = await bank("restore_backup", backupId=made, createPreRestoreBackup=False)
        assert "preRestoreBackupPath" not in answer
        assert [path.name for path in bank.backups()] == [made]


@pytest.mark.parametrize("lasting", [False, True], ids=["one change fails", "all fail from then"])
async def test_without_room_for_the_safety_backup_nothing_is_restored(tmp_path: Path, lasting: bool) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "old")
        bank.put("sub/other.md", "old")
        made = await backup(bank)
        bank.put("progress.md", "new")
        for step in range(4):  # two files, the manifest, the name
            bank.fuse.left, bank.fuse.lasting = step, lasting
            with pytest.raises(Unavailable, match="Nothing was restored") as caught:
                await bank("restore_backup", backupId=made)
            assert caught.value.facts["reason"] == "storage_full"
            bank.fuse.left = None
            assert bank.get("progress.md") == "new"
            if lasting:  # clearing away what is left is a change too
                await bank("create_backup")
        answer = await bank("restore_backup", backupId=made)
        assert answer["restoredFiles"] == ["progress.md", "sub/other.md"]


async def test_a_home_that_is_no_folder_any_more_refuses_the_restore(tmp_path: Path) -> None:
    async with backing_up(tmp_path / "home") as bank:
        shelf = tmp_path / "shelf"
        bank.put("progress.md", "old")
        made = (await bank("create_backup", backupDir=str(shelf)))["id"]
        bank.put("progress.md", "new")
        # The lock of the folder of backups cannot be made where something else has its name.
        (bank.home / ".everkept-backup.lock").mkdir()
        with pytest.raises(Unavailable, match="Nothing was restored"):
            await bank("restore_backup", backupId=made, backupDir=str(shelf))
        assert bank.get("progress.md") == "new"


async def test_a_restore_that_stops_in_the_middle_can_be_repeated(tmp_path: Path) -> None:
    names = [f"file-{number}.md" for number in range(5)]
    async with backing_up(tmp_path) as bank:
        for name in names:
            bank.put(name, "old")
        made = await backup(bank)
        for step in range(len(names)):
            for name in names:
                bank.put(name, "new")
            bank.fuse.left, bank.fuse.lasting = step, True
            with pytest.raises(Unavailable, match=rf"after {step} files?\. Not restored") as caught:
                await bank("restore_backup", backupId=made, createPreRestoreBackup=False)
            done = caught.value.facts["restoredFiles"]
            assert {name: bank.get(name) for name in names} == {
                name: "old" if name in done else "new" for name in names
            }
            bank.fuse.left = None
            answer = await bank("restore_backup", backupId=made)
            assert (answer["restoredCount"], answer["changedCount"]) == (5, 5 - step)
            assert {bank.get(name) for name in names} == {"old"}


async def test_a_damaged_backup_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        for name in ("a.md", "b.md", "c.md"):
            bank.put(name, "old")
        made = await backup(bank)
        bank.put("a.md", "new")
        (bank.home / made / "a.md").write_text("Old", encoding="utf-8")
        (bank.home / made / "c.md").unlink()
        with pytest.raises(Refused) as caught:
            await bank("restore_backup", backupId=made)
        assert caught.value.facts["damagedFiles"] == ["a.md (altered)", "c.md (missing)"]
        assert "a.md (altered), c.md (missing)" in caught.value.message
        assert bank.get("a.md") == "new"
        assert [path.name for path in bank.backups()] == [made]


async def test_a_backup_of_the_public_server_is_restored(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        (bank.home / PUBLIC).mkdir()
        (bank.home / PUBLIC / "progress.md").write_text("theirs", encoding="utf-8")
        (bank.home / PUBLIC / "data.json").write_text("{}", encoding="utf-8")
        bank.put("progress.md", "ours")
        bank.graph.state = "Ada"
        answer = await bank("restore_backup", backupId=PUBLIC)
        assert bank.get("progress.md") == "theirs"
        assert answer["restoredFiles"] == ["data.json", "progress.md"]
        assert answer["keptFiles"] == [GRAPH]
        assert (bank.graph.state, bank.graph.changes) == ("Ada", 0)


async def test_an_empty_backup_restores_nothing(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        (bank.home / PUBLIC).mkdir()
        with pytest.raises(NotFound, match="no files to restore"):
            await bank("restore_backup", backupId=PUBLIC)


async def test_core_files_under_old_names_come_back_where_they_are_read(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        (bank.home / PUBLIC).mkdir()
        (bank.home / PUBLIC / "activeContext.md").write_text("theirs", encoding="utf-8")
        (bank.home / PUBLIC / "decision-log.md").write_text("theirs", encoding="utf-8")
        bank.put("active-context.md", "ours")
        bank.put("decisionLog.md", "ours")
        answer = await bank("restore_backup", backupId=PUBLIC)
        assert bank.banking.names() == ["active-context.md", "decision-log.md"]
        for name in ("active-context.md", "decision-log.md"):
            assert (await bank_files.read(bank.banking.bank, name)).text == "theirs"
        assert answer["restoredFiles"] == ["active-context.md", "decision-log.md"]
        assert answer["keptFiles"] == []


async def test_views_of_the_graph_and_files_put_there_later_are_not_copied(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "old")
        bank.put("graph/graph.md", "old view")
        bank.graph.state = "Ada"
        made = await backup(bank)
        (bank.home / made / "added.md").write_text("by hand", encoding="utf-8")
        bank.put("graph/graph.md", "new view")
        answer = await bank("restore_backup", backupId=made)
        assert bank.get("graph/graph.md") == "new view"
        assert answer["restoredFiles"] == [GRAPH, "progress.md"]
        assert answer["skippedFiles"] == ["added.md", "graph/graph.md"]
        assert answer["keptFiles"] == []


async def test_a_graph_that_was_broken_already_does_not_keep_the_files_back(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "old")
        bank.put(GRAPH, "broken")
        made = await backup(bank)
        bank.put("progress.md", "new")
        answer = await bank("restore_backup", backupId=made)
        assert bank.get("progress.md") == "old"
        assert answer["restoredFiles"] == ["progress.md"]
        assert [warning["code"] for warning in answer["warnings"]] == ["graph_not_restored"]
        assert answer["skippedFiles"] == [GRAPH]


async def test_a_graph_that_cannot_be_set_is_said_with_what_was_restored(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "old")
        bank.graph.state = "Ada"
        made = await backup(bank)
        bank.graph.failing = ["set_state"]
        with pytest.raises(Unavailable, match="Not restored: the graph") as caught:
            await bank("restore_backup", backupId=made)
        assert caught.value.facts["restoredFiles"] == ["progress.md"]
        assert bank.home / caught.value.facts["preRestoreBackupPath"] in bank.backups()


async def test_a_bank_whose_folder_is_lost_comes_back(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "old")
        bank.put("sub/deep.md", "old")
        made = await backup(bank)
        before = bank.state()
        bank.folder.rename(tmp_path / "elsewhere")
        (view,) = (await bank("list_backups"))["backups"]
        assert view["id"] == made
        answer = await bank("restore_backup", backupId=made)
        assert bank.state() == before
        assert "preRestoreBackupPath" not in answer


async def test_a_backup_of_another_bank_is_restored_only_where_that_is_meant(tmp_path: Path) -> None:
    shelf = str(tmp_path / "shelf")
    async with backing_up(tmp_path / "one") as bank:
        bank.put("progress.md", "of one")
        made = (await bank("create_backup", backupDir=shelf))["id"]
        (view,) = (await bank("list_backups", backupDir=shelf))["backups"]
        assert "otherBank" not in view
    async with backing_up(tmp_path / "two") as bank:
        (view,) = (await bank("list_backups", backupDir=shelf))["backups"]
        assert view["otherBank"] is True
        with pytest.raises(Refused, match="is a backup of") as caught:
            await bank("restore_backup", backupId=made, backupDir=shelf)
        assert "otherBank=true" in (caught.value.hint or "")
        assert bank.state() == {}
        answer = await bank("restore_backup", backupId=made, backupDir=shelf, otherBank=True)
        assert bank.get("progress.md") == "of one"
        assert [warning["code"] for warning in answer["warnings"]] == ["backup_of_another_bank"]


async def test_of_two_banks_in_one_folder_each_restores_its_own(tmp_path: Path) -> None:
    beside = BankOptions(str(tmp_path), folder="beside")
    async with backing_up(tmp_path) as one, backing_up(tmp_path, options=beside) as two:
        one.put("progress.md", "of one")
        two.put("progress.md", "of two")
        made = await backup(one)
        with pytest.raises(Refused):
            await two("restore_backup", backupId=made)
        assert two.get("progress.md") == "of two"
        await one("restore_backup", backupId=made)


async def test_a_bank_that_was_moved_with_its_backups_restores_them(tmp_path: Path) -> None:
    async with backing_up(tmp_path / "old") as bank:
        bank.put("progress.md", "before")
        made = await backup(bank)
    (tmp_path / "old").rename(tmp_path / "new")
    async with backing_up(tmp_path / "new") as bank:
        bank.put("progress.md", "after")
        answer = await bank("restore_backup", backupId=made)
        assert bank.get("progress.md") == "before"
        assert "warnings" not in answer


@pytest.mark.parametrize(
    "backup_id",
    [
        "",
        "..",
        "memory-bank",
        "/etc",
        f"../{PUBLIC}",
        f"{PUBLIC}/..",
        f"{PUBLIC}/../memory-bank",
        f"x{PUBLIC}",
        f"{PUBLIC}ZZ",
        f"{PUBLIC}\n",
        f".{PUBLIC}.partial",
        PUBLIC.upper(),
        PUBLIC.replace("0", "\u0660"),
        "memory-bank-backup-2026-02-13T",
        "memory-bank-backup-2026-02-13",
        "memory-bank-backup-*",
    ],
)
async def test_what_is_no_id_of_a_backup_is_refused(tmp_path: Path, backup_id: str) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "text")
        (bank.home / PUBLIC).mkdir()
        with pytest.raises(InvalidInput, match="Invalid backup ID format"):
            await bank("restore_backup", backupId=backup_id)
        assert bank.get("progress.md") == "text"


async def test_an_id_without_a_folder_is_not_found(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "text")
        with pytest.raises(NotFound, match="Backup not found"):
            await bank("restore_backup", backupId=PUBLIC)
        (bank.home / PUBLIC).write_text("a file", encoding="utf-8")
        with pytest.raises(NotFound, match="not a directory"):
            await bank("restore_backup", backupId=PUBLIC)


async def test_without_a_folder_chosen_there_is_no_bank_to_restore(tmp_path: Path) -> None:
    from everkept.families.bank.model import BankOptions

    async with backing_up(tmp_path, options=BankOptions(place=None)) as bank:
        with pytest.raises(BankNotFound):
            await bank("restore_backup", backupId=PUBLIC)


async def test_a_manifest_that_leads_out_of_the_backup_is_damaged(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        bank.put("progress.md", "old")
        made = await backup(bank)
        manifest = bank.home / made / MANIFEST_NAME
        text = manifest.read_text(encoding="utf-8").replace("progress.md", "../../evil.md")
        manifest.write_text(text, encoding="utf-8")
        with pytest.raises(Refused, match="damaged"):
            await bank("restore_backup", backupId=made)
        assert not (tmp_path.parent / "evil.md").exists()


async def test_the_progress_of_a_restore_only_grows(tmp_path: Path) -> None:
    async with backing_up(tmp_path) as bank:
        for number in range(120):
            bank.put(f"file-{number}.md", "old")
        made = await backup(bank)
        said: list[float] = []

        async def report(done: float, _total: float | None, _message: str | None) -> None:
            said.append(done)

        call = ToolCall(Session(), "restore_backup", report)
        await bank.banking.tools.get("restore_backup").run(call, {"backupId": made})
        assert said == sorted(set(said))
        assert said[-1] == 4 * 120  # checked, copied and checked for safety, restored


async def test_the_graph_of_the_records_goes_back_in_one_change(tmp_path: Path) -> None:
    async with bank_in(tmp_path) as bank:
        mirror = GraphMirror(bank.records, bank.library, bank.clock, mask=True, read_only=False)
        bank.offer(
            BankGraphTools(bank.banks, bank.records, mirror, bank.clock, mask=True),
            BackupTools(bank.banks, bank.files, mirror, bank.clock),
        )
        bank.put("progress.md", "old")
        await bank("graph_upsert_entity", name="Ada", entityType="person")
        await bank("graph_add_observation", entity="Ada", text="wrote notes")
        made = (await bank("create_backup"))["id"]
        before = await mirror.read_state(bank.bank)
        await bank("graph_add_observation", entity="Ada", text="later")
        await bank("graph_upsert_entity", name="Grace", entityType="person")
        store = await bank.records.open_to_read(bank.bank)
        revision = await store.get_revision()
        answer = await bank("restore_backup", backupId=made)
        assert LOG_PATH in answer["restoredFiles"]
        assert (await mirror.read_state(bank.bank)).compute_stats() == before.compute_stats()
        assert mirror.parse_state((bank.folder / LOG_PATH).read_bytes()).compute_stats() == before.compute_stats()
        (change,) = await store.read_changes(after=revision)
        assert change.tool == "restore_backup"
        await bank("restore_backup", backupId=Path(answer["preRestoreBackupPath"]).name)
        found = await bank("graph_search", query="*")
        assert {entity["name"] for entity in found["entities"]} == {"Ada", "Grace"}


async def test_a_log_with_broken_lines_leaves_the_graph_as_it_is(tmp_path: Path) -> None:
    async with bank_in(tmp_path) as bank:
        mirror = GraphMirror(bank.records, bank.library, bank.clock, mask=True, read_only=False)
        bank.offer(
            BankGraphTools(bank.banks, bank.records, mirror, bank.clock, mask=True),
            BackupTools(bank.banks, bank.files, mirror, bank.clock),
        )
        bank.put("progress.md", "old")
        await bank("graph_upsert_entity", name="Ada", entityType="person")
        with (bank.folder / LOG_PATH).open("ab") as log:
            log.write(b'{"type":"entity_cre')
        made = (await bank("create_backup"))["id"]
        await bank("graph_upsert_entity", name="Grace", entityType="person")
        bank.put("progress.md", "new")
        answer = await bank("restore_backup", backupId=made)
        assert bank.get("progress.md") == "old"
        assert "graph_not_restored" in [warning["code"] for warning in answer["warnings"]]
        assert LOG_PATH in answer["skippedFiles"]
        found = await bank("graph_search", query="*")
        assert {entity["name"] for entity in found["entities"]} == {"Ada", "Grace"}


PATTERN = r"[a-z][a-z0-9 _-]{0,8}[a-z0-9](/[a-z][a-z0-9]{0,5}x){0,2}\.[a-z]{2,4}"
# What no store can reach is no file of a bank: `aux.md` is a device on some systems.
NAMES = st.from_regex(PATTERN, fullmatch=True).filter(lambda path: all(map(is_name, path.split("/"))))
TREES = st.dictionaries(NAMES, st.binary(max_size=60), min_size=1, max_size=6)


@settings(max_examples=examples(30), deadline=None)
@given(before=TREES, after=TREES)
async def test_whatever_happened_since_a_restore_brings_every_file_back(
    before: dict[str, bytes], after: dict[str, bytes]
) -> None:
    with tempfile.TemporaryDirectory() as home:
        async with backing_up(Path(home)) as bank:
            for name, data in before.items():
                bank.put(name, data)
            made = await backup(bank)
            for name in list(before)[::2]:
                (bank.folder / name).unlink()
            for name, data in after.items():
                if not (bank.folder / name).is_dir():
                    bank.put(name, data)
            changed = bank.state()
            answer = await bank("restore_backup", backupId=made)
            assert bank.state() == changed | before
            assert answer["keptFiles"] == sorted(set(changed) - set(before))
            if changed:
                copy = state_of(Path(answer["preRestoreBackupPath"]))
                copy.pop(MANIFEST_NAME)
                assert copy == changed
