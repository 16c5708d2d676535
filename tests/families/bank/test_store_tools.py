"""Stores are registered for the user, selected for the session, and listed whatever they do."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bank_backups import backing_up_far_away
from everkept.core.files import FileStore, FileStores
from everkept.core.sessions import Session
from everkept.errors import BankNotFound, InvalidInput, NotFound, ReadOnly, Unavailable
from everkept.families.bank import store_tools
from everkept.families.bank.banks import Banks, StoreRegistration
from everkept.families.bank.model import CORE_FILES, BankOptions
from everkept.families.bank.store_tools import StoreTools
from memory_bank import Banking, bank_in
from records import DAY_ONE

PATIENCE = 60  # seconds until a test stops waiting for what has hung
REMOTE = "ssh://ada@example.org/srv/project"


@asynccontextmanager
async def storing(home: Path, files: type["Unreachable"] | None = None, **more: Any) -> AsyncGenerator[Banking, None]:
    async with bank_in(home, **more) as banking:
        stores: FileStores = banking.files if files is None else files(banking.files)
        banks = Banks(stores, banking.banks.registry, banking.banks.options)
        banking.offer(StoreTools(banks, banking.clock))
        yield banking


class Unreachable:
    """Implements FileStores: whatever is remote fails at once."""

    def __init__(self, inner: FileStores) -> None:
        self._inner = inner

    async def open_folder(self, address: str) -> FileStore:
        if address.startswith("ssh://"):
            await self.answer()
        return await self._inner.open_folder(address)

    async def answer(self) -> None:
        raise Unavailable("Nobody answers.")

    async def close(self) -> None:
        await self._inner.close()


class Hanging(Unreachable):
    """Whatever is remote never answers."""

    async def answer(self) -> None:
        await asyncio.Event().wait()


def project(path: Path, *names: str) -> str:
    (path / "memory-bank").mkdir(parents=True)
    for name in names:
        (path / "memory-bank" / name).parent.mkdir(exist_ok=True)
        (path / "memory-bank" / name).write_text(name, encoding="utf-8")
    return str(path)


async def test_a_new_session_means_the_store_of_the_start(tmp_path: Path) -> None:
    async with storing(tmp_path / "start") as bank:
        bank.put("progress.md", "text")
        bank.put("notes.txt", "no file of a bank")
        assert await bank("list_stores") == {
            "stores": [
                {
                    "id": "start",
                    "path": str(tmp_path / "start"),
                    "kind": "local",
                    "isActive": True,
                    "hasGraph": False,
                    "fileCount": 1,
                    "lastUsedAt": "2023-11-14T22:13:21.000Z",
                    "available": True,
                }
            ],
            "selectedStoreId": "start",
        }


async def test_without_a_folder_nothing_is_selected(tmp_path: Path) -> None:
    async with storing(tmp_path, options=BankOptions(place=None)) as bank:
        assert await bank("list_stores") == {"stores": [], "selectedStoreId": None}


async def test_a_registered_store_is_listed_and_selected_by_its_id(tmp_path: Path) -> None:
    other = project(tmp_path / "other", "progress.md", "graph/graph.jsonl")
    async with storing(tmp_path / "start") as bank:
        made = await bank("register_store", storeId="team", path=other)
        assert made == {
            "registered": True,
            "store": {
                "storeId": "team",
                "projectPath": other,
                "kind": "local",
                "lastUsedAt": "2023-11-14T22:13:21.000Z",
                "registeredAt": "2023-11-14T22:13:21.000Z",
            },
        }
        listed = await bank("list_stores")
        assert [(s["id"], s["isActive"]) for s in listed["stores"]] == [("start", True), ("team", False)]
        assert listed["stores"][1]["hasGraph"] is True
        assert listed["stores"][1]["fileCount"] == 1
        chosen = await bank("select_store", storeId="team")
        assert chosen["selected"] is True
        assert (chosen["id"], chosen["path"]) == ("team", other)
        assert chosen["memoryBankDir"] == str(tmp_path / "other" / "memory-bank")
        assert bank.session.bank == chosen["memoryBankDir"]
        listed = await bank("list_stores")
        assert listed["selectedStoreId"] == "team"
        assert [(s["id"], s["isActive"]) for s in listed["stores"]] == [("team", True)]


async def test_selecting_makes_the_core_files_that_are_missing(tmp_path: Path) -> None:
    other = project(tmp_path / "other", "progress.md")
    async with storing(tmp_path / "start") as bank:
        chosen = await bank("select_store", path=other)
        assert sorted(chosen["createdFiles"]) == sorted(set(CORE_FILES) - {"progress.md"})
        there = tmp_path / "other" / "memory-bank"
        assert (there / "progress.md").read_text(encoding="utf-8") == "progress.md"
        assert {path.name for path in there.glob("*.md")} == set(CORE_FILES)
        assert "createdFiles" not in await bank("select_store", path=other)


async def test_a_relative_path_begins_at_the_folder_of_the_start(tmp_path: Path) -> None:
    other = project(tmp_path / "start" / "inner", "progress.md")
    async with storing(tmp_path / "start") as bank:
        assert (await bank("select_store", path="inner"))["path"] == other


async def test_a_selection_belongs_to_one_session(tmp_path: Path) -> None:
    other = project(tmp_path / "other")
    async with storing(tmp_path / "start") as bank:
        await bank("select_store", path=other)
        bank.session = Session()
        assert (await bank("list_stores"))["selectedStoreId"] == "start"


async def test_a_connection_without_state_is_told_so(tmp_path: Path) -> None:
    other = project(tmp_path / "other")
    async with storing(tmp_path / "start", session=Session(stateful=False)) as bank:
        chosen = await bank("select_store", path=other)
        assert chosen["selected"] is False
        assert "storeId" in chosen["note"]


async def test_a_server_that_only_reads_selects_what_is_there(tmp_path: Path) -> None:
    options = BankOptions(place=str(tmp_path / "start"), read_only=True)
    other = project(tmp_path / "other", "progress.md")
    project(tmp_path / "empty")
    (tmp_path / "empty" / "memory-bank").rmdir()
    async with storing(tmp_path / "start", options=options) as bank:
        await bank.banks.registry.put(StoreRegistration("team", other, "local", DAY_ONE, DAY_ONE))
        assert (await bank("select_store", storeId="team"))["selected"] is True
        (store,) = await bank.banks.registry.list_stores()
        assert store.last_used_at == DAY_ONE
        for arguments in ({"action": "register", "path": other}, {"action": "unregister"}):
            with pytest.raises(ReadOnly):
                await bank("select_store", storeId="team", **arguments)
        assert await bank.banks.registry.list_stores() == [store]
        assert [p.name for p in (tmp_path / "other" / "memory-bank").iterdir()] == ["progress.md"]
        with pytest.raises(BankNotFound):
            await bank("select_store", path=str(tmp_path / "empty"))
        assert list((tmp_path / "empty").iterdir()) == []


async def test_registering_again_moves_a_store_and_keeps_since_when(tmp_path: Path) -> None:
    first, second = project(tmp_path / "first"), project(tmp_path / "second")
    async with storing(tmp_path / "start") as bank:
        before = (await bank("register_store", storeId="team", path=first))["store"]
        after = (await bank("register_store", storeId="team", path=second))["store"]
        assert after["projectPath"] == second
        assert after["registeredAt"] == before["registeredAt"]
        assert after["lastUsedAt"] > before["lastUsedAt"]


async def test_of_two_names_for_one_bank_the_last_used_is_meant(tmp_path: Path) -> None:
    other = project(tmp_path / "other")
    async with storing(tmp_path / "start") as bank:
        await bank("register_store", storeId="one", path=other)
        await bank("register_store", storeId="two", path=str(tmp_path / "other" / "memory-bank"))
        await bank("select_store", storeId="one")
        assert (await bank("list_stores"))["selectedStoreId"] == "one"
        await bank("select_store", storeId="two")
        assert (await bank("list_stores"))["selectedStoreId"] == "two"


async def test_an_active_store_does_not_borrow_the_name_of_another(tmp_path: Path) -> None:
    other = project(tmp_path / "other")
    async with storing(tmp_path / "start") as bank:
        await bank("register_store", storeId="start", path=other)
        assert (await bank("list_stores"))["selectedStoreId"] == str(tmp_path / "start")


async def test_unregistering_forgets_the_name_and_keeps_the_files(tmp_path: Path) -> None:
    other = project(tmp_path / "other", "progress.md")
    async with storing(tmp_path / "start") as bank:
        await bank("register_store", storeId="team", path=other)
        text = await bank.text("unregister_store", storeId="team")
        assert text == 'Store "team" removed from registry'
        assert (tmp_path / "other" / "memory-bank" / "progress.md").exists()
        for tool in ("unregister_store", "select_store"):
            with pytest.raises(NotFound, match='Store "team" not found in registry'):
                await bank(tool, storeId="team")


async def test_select_store_registers_and_unregisters_too(tmp_path: Path) -> None:
    other = project(tmp_path / "other")
    async with storing(tmp_path / "start") as bank:
        made = await bank("select_store", action="register", storeId="team", path=other)
        assert (made["success"], made["action"]) == (True, "register")
        assert made["store"]["projectPath"] == other
        assert bank.session.bank is None
        gone = await bank("select_store", action="unregister", storeId="team")
        assert gone == {
            "success": True,
            "action": "unregister",
            "storeId": "team",
            "message": 'Store "team" removed from registry',
        }
        with pytest.raises(NotFound):
            await bank("select_store", action="unregister", storeId="team")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "Either path or storeId is required for select action"),
        ({"path": "x", "storeId": "y"}, "not both"),
        ({"action": "register", "storeId": "y"}, "Both path and storeId are required"),
        ({"action": "register", "path": "x"}, "Both path and storeId are required"),
        ({"action": "unregister", "path": "x"}, "storeId is required for unregister action"),
        ({"action": "rename", "storeId": "y"}, "must be one of"),
        ({"storeId": " "}, "empty"),
        ({"action": "register", "storeId": "a\tb", "path": "."}, "control character"),
        ({"action": "register", "storeId": "y", "path": ".", "kind": "remote"}, "is a local path"),
        ({"action": "register", "storeId": "y", "path": REMOTE, "kind": "local"}, "remote path"),
        ({"path": "ssh://ada:secret@example.org/x"}, "password"),
        ({"path": "http://example.org/x"}, "address"),
    ],
)
async def test_wrong_arguments_are_named_and_change_nothing(
    tmp_path: Path, arguments: dict[str, Any], said: str
) -> None:
    async with storing(tmp_path) as bank:
        with pytest.raises(InvalidInput, match=said) as caught:
            await bank("select_store", **arguments)
        assert "secret" not in str(caught.value)
        assert await bank.banks.registry.list_stores() == []
        assert bank.session.bank is None
        assert bank.names() == []


@pytest.mark.parametrize(
    ("path", "said"), [("nowhere", "Path does not exist"), ("file.txt", "Path is a file, not a folder")]
)
@pytest.mark.parametrize("tool", ["select_store", "register_store"])
async def test_a_path_that_is_no_folder_is_not_found(tmp_path: Path, tool: str, path: str, said: str) -> None:
    more = {"storeId": "team"} if tool == "register_store" else {}
    async with storing(tmp_path) as bank:
        (tmp_path / "file.txt").write_text("", encoding="utf-8")
        with pytest.raises(NotFound, match=said):
            await bank(tool, path=path, **more)
        assert {entry.name for entry in bank.home.iterdir()} == {"memory-bank", "file.txt"}


@pytest.mark.parametrize("files", [Unreachable, Hanging])
async def test_a_remote_store_that_is_down_does_not_hold_up_the_list(
    tmp_path: Path, files: type[Unreachable], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_tools, "LOOK_SECONDS", 1.0)  # also for a busy machine
    async with storing(tmp_path / "start", files) as bank:
        for number, path in enumerate((REMOTE, project(tmp_path / "here", "progress.md"))):
            kind = "remote" if path == REMOTE else "local"
            await bank.banks.registry.put(StoreRegistration(f"store-{number}", path, kind, DAY_ONE + number, DAY_ONE))
        async with asyncio.timeout(PATIENCE):
            listed = {store["id"]: store for store in (await bank("list_stores"))["stores"]}
        assert listed["store-0"]["available"] is False
        assert listed["store-0"]["kind"] == "remote"
        assert listed["store-1"]["available"] is True
        assert listed["store-1"]["fileCount"] == 1


@pytest.mark.parametrize("tool", ["register_store", "select_store"])
async def test_a_store_on_a_machine_that_is_off_is_registered_with_a_warning(tmp_path: Path, tool: str) -> None:
    more = {"action": "register"} if tool == "select_store" else {}
    async with storing(tmp_path / "start", Unreachable) as bank:
        made = await bank(tool, storeId="far", path=REMOTE, **more)
        assert made["store"]["projectPath"] == REMOTE
        assert made["available"] is False
        assert [warned["code"] for warned in made["warnings"]] == ["store_unavailable"]
        assert "Nobody answers." in made["warnings"][0]["message"]
        assert [store.store_id for store in await bank.banks.registry.list_stores()] == ["far"]


async def test_the_active_store_is_known_though_it_does_not_answer(tmp_path: Path) -> None:
    async with storing(tmp_path / "start", Unreachable) as bank:
        bank.session.bank = f"{REMOTE}/memory-bank"
        (first, *_) = (await bank("list_stores"))["stores"]
        assert (first["isActive"], first["available"]) == (True, False)
        await bank.banks.registry.put(StoreRegistration("far", REMOTE, "remote", DAY_ONE, DAY_ONE))
        listed = await bank("list_stores")
        assert listed["selectedStoreId"] == "far"
        assert len(listed["stores"]) == 1


async def test_a_store_on_another_machine_is_registered_and_selected(tmp_path: Path) -> None:
    async with backing_up_far_away(tmp_path) as far:
        bank = far.banking
        listed = await bank("list_stores")
        place = listed["stores"][0]["path"]
        assert (listed["stores"][0]["kind"], listed["selectedStoreId"]) == ("remote", "project")
        made = await bank("register_store", storeId="far", path=place)
        assert made["store"]["kind"] == "remote"
        chosen = await bank("select_store", storeId="far")
        assert chosen["memoryBankDir"] == f"{place}/memory-bank"
        assert sorted(bank.names()) == sorted(CORE_FILES)
        (store,) = (await bank("list_stores"))["stores"]
        assert (store["id"], store["available"], store["fileCount"]) == ("far", True, 5)
        with pytest.raises(NotFound, match="Path does not exist"):
            await bank("register_store", storeId="none", path=f"{place}/nowhere")


async def test_a_folder_that_has_gone_is_not_available(tmp_path: Path) -> None:
    other = project(tmp_path / "other", "progress.md")
    async with storing(tmp_path / "start") as bank:
        await bank("register_store", storeId="team", path=other)
        (tmp_path / "other").rename(tmp_path / "moved")
        listed = {store["id"]: store for store in (await bank("list_stores"))["stores"]}
        assert listed["team"]["available"] is False


async def test_the_id_of_an_unregistered_bank_is_accepted_like_any_other(tmp_path: Path) -> None:
    async with storing(tmp_path) as bank:
        offered = (await bank("list_stores"))["stores"][0]["id"]
        assert await bank.banks.find_bank(bank.call(), offered) == bank.bank
        assert (await bank("select_store", storeId=offered))["memoryBankDir"] == str(bank.folder)
        with pytest.raises(NotFound):
            await bank.banks.find_bank(bank.call(), f"{offered}-2")
