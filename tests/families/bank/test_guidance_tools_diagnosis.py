"""The guide, the diagnosis without secrets, and the migration of old names."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from everkept.errors import BankNotFound, NotFound
from everkept.families.bank.guidance_tools import CareTools, RuntimeInfo
from everkept.families.bank.model import CORE_FILES, MODES, BankOptions
from memory_bank import Banking, bank_in

VARIABLES = ("PATH", "AWS_SECRET_ACCESS_KEY", "EVERKEPT_DATA_DIR", "EVERKEPT_CONFIG")


@asynccontextmanager
async def caring(home: Path, **more: Any) -> AsyncGenerator[Banking, None]:
    async with bank_in(home, **more) as banking:
        surroundings = RuntimeInfo("/somewhere", VARIABLES, "/started/here")
        banking.offer(CareTools(banking.banks, banking.clock, lambda: banking.tools, surroundings))
        yield banking


async def test_the_guide_needs_no_bank_and_names_modes_files_and_tools(tmp_path: Path) -> None:
    async with caring(tmp_path, options=BankOptions(place=None)) as bank:
        text = await bank.text("get_instructions")
        for name in (*CORE_FILES, *MODES, *(tool.name for tool in bank.tools)):
            assert f"`{name}`" in text


async def test_the_diagnosis_is_a_heading_and_json(tmp_path: Path) -> None:
    async with caring(tmp_path) as bank:
        bank.session.mode, bank.session.updates_bank = "debug", True
        heading, _, rest = (await bank.text("debug_mcp_config")).partition("\n")
        assert heading == "MCP configuration:"
        said = json.loads(rest)
        assert said["memoryBank"] == {
            "directory": str(bank.folder),
            "projectPath": str(bank.home),
            "language": "en",
            "folderName": "memory-bank",
            "status": "found",
        }
        assert said["mode"] == {"name": "debug", "isUmbActive": True, "memoryBankStatus": "ACTIVE"}
        assert said["system"]["workingFolder"] == "/somewhere"
        assert said["system"]["cwd"] == "/started/here"
        assert "env" not in said["system"]


async def test_the_diagnosis_tells_names_of_our_variables_alone(tmp_path: Path) -> None:
    async with caring(tmp_path) as bank:
        said = await bank("debug_mcp_config", verbose=True)
        assert said["system"]["env"] == ["EVERKEPT_CONFIG", "EVERKEPT_DATA_DIR"]
        assert "AWS" not in json.dumps(said)


@pytest.mark.parametrize(("place", "status"), [(None, "not chosen"), ("", "unavailable"), ("{home}", "missing")])
async def test_the_diagnosis_says_what_is_wrong_with_the_bank(tmp_path: Path, place: str | None, status: str) -> None:
    options = BankOptions(place=place.format(home=tmp_path) if place is not None else None)
    async with caring(tmp_path, options=options, made=False) as bank:
        said = await bank("debug_mcp_config")
        assert said["memoryBank"]["status"] == status
        assert said["mode"] == {"name": "code", "isUmbActive": False, "memoryBankStatus": "INACTIVE"}


async def test_old_names_become_new_ones_and_pairs_are_reported(tmp_path: Path) -> None:
    async with caring(tmp_path) as bank:
        bank.put("productContext.md", "product")
        bank.put("activeContext.md", "old")
        bank.put("active-context.md", "new")
        result = await bank.result("migrate_file_naming")
        assert result.text == (
            "Migration completed. 1 files migrated. Skipped activeContext.md: active-context.md exists."
        )
        assert result.facts == {
            "migrated": [{"from": "productContext.md", "to": "product-context.md"}],
            "skipped": [{"from": "activeContext.md", "to": "active-context.md", "reason": "active-context.md exists"}],
        }
        assert bank.get("product-context.md") == "product"
        assert (bank.get("activeContext.md"), bank.get("active-context.md")) == ("old", "new")


async def test_without_old_names_nothing_is_migrated(tmp_path: Path) -> None:
    async with caring(tmp_path) as bank:
        bank.put("progress.md", "text")
        assert await bank.text("migrate_file_naming") == "Migration completed. 0 files migrated."
        assert bank.names() == ["progress.md"]


async def test_names_are_migrated_in_a_bank_that_is_there(tmp_path: Path) -> None:
    async with caring(tmp_path, made=False) as bank:
        with pytest.raises(BankNotFound):
            await bank("migrate_file_naming")
        with pytest.raises(NotFound):
            await bank("migrate_file_naming", storeId="unknown")
        assert not bank.folder.exists()
