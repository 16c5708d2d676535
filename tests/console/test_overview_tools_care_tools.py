from pathlib import Path
from zipfile import ZipFile

from console_calls import ConsoleClient
from everkept.core.records import Record
from records import batch, memory

SECRET = "ghp_" + "a1B2c3" * 6


def find_files(folder: Path, pattern: str) -> list[Path]:
    return list(folder.glob(pattern))


async def test_a_backup_is_written_next_to_the_data_folder_and_listed(client: ConsoleClient) -> None:
    await client.remember("kept")
    made = await client.call("make_data_backup")
    listed = await client.call("list_data_backups")
    assert [each["file"] for each in listed["backups"]] == [made["file"]]
    assert not Path(made["file"]).is_relative_to(client.app.settings.data_dir)
    with ZipFile(made["file"]) as archive:
        assert "user.db" in archive.namelist()


async def test_everything_is_exported_next_to_the_data_folder_and_again(client: ConsoleClient) -> None:
    await client.remember("kept")
    made = await client.call("export_all_data")
    folder = Path(made["folder"])
    [records] = find_files(folder, "projects/*/records.jsonl")
    assert (made["records"], made["projects"]) == (1, 1)
    assert folder.parent == client.app.settings.data_dir.parent
    assert "kept" in records.read_text(encoding="utf-8")
    await client.remember("kept too")
    assert (await client.call("export_all_data"))["records"] == 2


async def test_secrets_are_found_without_being_told_and_masked(client: ConsoleClient) -> None:
    _, store = await client.app.library.open("shop")
    old: Record = memory(f"the token is {SECRET}", id="memory:1")  # as a version that knew no such secret stored it
    await store.commit(batch(old))
    found = await client.call("find_stored_secrets")
    assert len(found["findings"]) == 1
    assert SECRET not in str(found)
    await client.call("mask_stored_secrets")
    assert (await client.call("find_stored_secrets"))["findings"] == []
    assert SECRET not in str(await client.call("list_memories"))


async def test_care_is_only_the_owners(client: ConsoleClient) -> None:
    token = await client.create_account("mira", shop="write")
    tools = ("list_data_backups", "make_data_backup", "export_all_data", "find_stored_secrets", "mask_stored_secrets")
    for tool in tools:
        assert await client.refused(tool, token=token) == "refused", tool
