from pathlib import Path

import pytest

from everkept.core.sessions import Session, ToolCall
from everkept.errors import BankNotFound, NotFound, Refused
from everkept.families.bank.banks import get_last_part, get_parent
from everkept.families.bank.model import BankOptions
from memory_bank import bank_in


async def test_the_folder_of_a_project_has_its_bank_inside(tmp_path: Path) -> None:
    async with bank_in(tmp_path / "shop") as banking:
        bank = await banking.banks.require_bank(banking.call())
        assert Path(bank.address) == tmp_path / "shop" / "memory-bank"
        assert Path(bank.home.address) == tmp_path / "shop"
        assert bank.folder == "memory-bank"


async def test_a_folder_that_is_a_bank_itself_counts_as_one(tmp_path: Path) -> None:
    async with bank_in(tmp_path / "shop") as banking:
        named = await banking.banks.open_in_folder(str(banking.folder))
        assert Path(named.address) == banking.folder
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "activeContext.md").write_text("# Context\n", encoding="utf-8")
        by_file = await banking.banks.open_in_folder(str(tmp_path / "docs"))
        assert Path(by_file.address) == tmp_path / "docs"


async def test_a_progress_file_alone_makes_no_bank_of_a_project(tmp_path: Path) -> None:
    async with bank_in(tmp_path / "shop", made=False) as banking:
        banking.home.mkdir()
        (banking.home / "progress.md").write_text("# Mine\n", encoding="utf-8")
        with pytest.raises(BankNotFound) as caught:
            await banking.banks.require_bank(banking.call())
        assert caught.value.facts["expectedPath"] == str(banking.folder)


async def test_a_link_of_a_repository_makes_no_bank_of_another_folder(tmp_path: Path) -> None:
    elsewhere = tmp_path / "private"
    elsewhere.mkdir()
    (elsewhere / "settings.json").write_text("{}", encoding="utf-8")
    async with bank_in(tmp_path / "shop", made=False) as banking:
        banking.home.mkdir()
        banking.folder.symlink_to(elsewhere, target_is_directory=True)
        with pytest.raises(Refused):
            await banking.banks.require_bank(banking.call())
        with pytest.raises(Refused):
            await banking.banks.open_in_folder(str(banking.home))


async def test_the_sessions_choice_goes_before_the_start_and_a_store_before_both(tmp_path: Path) -> None:
    async with bank_in(tmp_path / "shop") as banking, bank_in(tmp_path / "other") as other:
        chosen = await banking.banks.open_at(str(other.folder))
        assert banking.banks.select(banking.call(), chosen) is None
        assert (await banking.banks.require_bank(banking.call())).address == chosen.address
        with pytest.raises(NotFound):
            await banking.banks.require_bank(banking.call(), "unknown")


async def test_a_connection_without_state_is_told_to_name_the_store(tmp_path: Path) -> None:
    async with bank_in(tmp_path / "shop") as banking:
        call = ToolCall(Session(stateful=False), "test")
        assert "storeId" in (banking.banks.select(call, banking.bank) or "")
        assert call.session.bank is None


async def test_where_no_folder_was_ever_named_there_is_no_bank(tmp_path: Path) -> None:
    async with bank_in(tmp_path / "shop", options=BankOptions(place=None)) as banking:
        with pytest.raises(BankNotFound):
            await banking.banks.require_bank(banking.call())


def test_addresses_have_parts_and_parents() -> None:
    assert get_parent("ssh://me@host:22/srv/shop/bank") == "ssh://me@host:22/srv/shop"
    assert get_last_part("ssh://me@host/srv/shop/") == "shop"
    assert get_last_part(str(Path("/srv") / "shop")) == "shop"
