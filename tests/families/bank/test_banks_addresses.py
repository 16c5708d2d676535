"""Where the path of a caller leads."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bank_backups import LineGraph
from everkept.errors import InvalidInput, Refused
from everkept.families.bank.backup_tools import BackupTools
from everkept.families.bank.banks import Bank, StoreRegistration, resolve_address
from everkept.families.bank.file_tools import FileTools
from everkept.families.bank.model import BankOptions
from everkept.families.bank.store_tools import StoreTools
from memory_bank import Banking, bank_in

START = str(Path.cwd() / "start")


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        (".", ("start",)),
        ("shop", ("start", "shop")),
        ("./shop/", ("start", "shop")),
        ("../other", ("other",)),
        ("shop/../api", ("start", "api")),
    ],
)
def test_a_relative_path_begins_at_the_start(path: str, parts: tuple[str, ...]) -> None:
    assert resolve_address(path, START) == str(Path.cwd().joinpath(*parts))


def test_what_says_where_it_is_stays_as_it_is() -> None:
    absolute = str(Path.cwd() / "elsewhere")
    assert resolve_address(absolute, START) == absolute
    assert resolve_address("~/shop", START) == "~/shop"
    assert resolve_address("ssh://ada@host/srv/shop", START) == "ssh://ada@host/srv/shop"
    assert resolve_address("SSH://ada@host/srv/shop", None) == "ssh://ada@host/srv/shop"


@pytest.mark.parametrize(
    ("path", "address"),
    [
        (".", "ssh://ada@host:2222/srv/start"),
        ("shop", "ssh://ada@host:2222/srv/start/shop"),
        ("../shop", "ssh://ada@host:2222/srv/shop"),
        ("../../../shop", "ssh://ada@host:2222/shop"),
        ("/home/ada", "ssh://ada@host:2222/home/ada"),
        ("my shop", "ssh://ada@host:2222/srv/start/my%20shop"),
        ("~/shop", "ssh://ada@host:2222/~/shop"),
    ],
)
def test_a_start_on_another_machine_keeps_paths_there(path: str, address: str) -> None:
    assert resolve_address(path, "ssh://ada@host:2222/srv/start") == address


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("ssh://", '"ssh://" has no host.'),
        ("ssh:///srv", '"ssh:///srv" has no host.'),
        ("ssh://host", '"ssh://host" has no user.'),
        ("https://ada:secret@host/shop", '"https://…" is not a supported address.'),
    ],
)
def test_an_address_that_is_none_is_quoted_as_it_was_given(path: str, said: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        resolve_address(path, START)
    assert raised.value.message == said


def test_a_relative_path_without_a_start_is_an_error() -> None:
    with pytest.raises(InvalidInput):
        resolve_address("shop", None)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Banking]:
    """A client from elsewhere: it may use the bank of the start, and the store `work`."""
    options = BankOptions(place=str(tmp_path / "start"), free_paths=False)
    async with bank_in(tmp_path / "start", options=options) as banking:
        banking.offer(
            FileTools(banking.banks, banking.records, banking.clock, _no_graph),
            StoreTools(banking.banks, banking.clock),
            BackupTools(banking.banks, banking.files, LineGraph(), banking.clock),
        )
        banking.put("progress.md", "# Progress\n")
        for folder in ("work", "private"):
            (tmp_path / folder / "memory-bank").mkdir(parents=True)
            (tmp_path / folder / "memory-bank" / "progress.md").write_text("x", encoding="utf-8")
        work = StoreRegistration("work", str(tmp_path / "work"), "local", 1, 1)
        await banking.banks.registry.put(work)
        far = StoreRegistration("far", "ssh://ada@example.org/srv/shop", "remote", 1, 1)
        await banking.banks.registry.put(far)
        yield banking


def everything_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


async def _no_graph(_: Bank) -> str | None:
    return None


NAMING: list[tuple[str, str, dict[str, Any]]] = [
    ("initialize_memory_bank", "path", {}),
    ("set_memory_bank_path", "path", {}),
    ("select_store", "path", {}),
    ("select_store", "path", {"action": "register", "storeId": "mine"}),
    ("register_store", "path", {"storeId": "mine"}),
    ("create_backup", "backupDir", {}),
    ("list_backups", "backupDir", {}),
    ("restore_backup", "backupDir", {"backupId": "memory-bank-backup-2026-02-13T10-30-00-000Z"}),
]


@pytest.mark.parametrize(("tool", "argument", "more"), NAMING)
@pytest.mark.parametrize(
    "path",
    [
        "{home}/private",
        "{home}/private/memory-bank",
        "../private",
        "{home}",
        "{home}/work/inner",
        "{home}/new",
        "~",
        "ssh://ada@example.org/srv/other",
        "ssh://eve@example.org/srv/shop",
    ],
)
async def test_a_client_from_elsewhere_reaches_no_folder_that_nobody_here_named(
    served: Banking, tmp_path: Path, tool: str, argument: str, more: dict[str, Any], path: str
) -> None:
    before = everything_in(tmp_path)
    with pytest.raises(Refused, match="may not use for backups" if argument == "backupDir" else "not a reg") as caught:
        await served(tool, **{argument: path.format(home=tmp_path)}, **more)
    assert "everkept register-store ID PATH" in (caught.value.hint or "")
    assert everything_in(tmp_path) == before
    assert served.session.bank is None
    assert {store.store_id for store in await served.banks.registry.list_stores()} == {"work", "far"}


async def test_a_client_from_elsewhere_uses_what_was_named_here_by_path_or_id(served: Banking, tmp_path: Path) -> None:
    for path in (tmp_path / "work", tmp_path / "work" / "memory-bank"):
        await served("set_memory_bank_path", path=str(path))
        assert served.session.bank == str(tmp_path / "work" / "memory-bank")
    await served("initialize_memory_bank", path=".")
    assert served.session.bank == str(tmp_path / "start" / "memory-bank")
    assert (await served("select_store", storeId="work"))["id"] == "work"
    made = await served("create_backup", backupDir=str(tmp_path / "work"))
    assert Path(made["backupPath"]).parent == tmp_path / "work"
    again = await served("register_store", storeId="again", path=str(tmp_path / "work"))
    assert again["registered"] is True
