"""What lies in a bank and cannot be used is named."""

import os
from pathlib import Path

import pytest

from everkept.families.bank.banks import Bank
from everkept.families.bank.file_tools import FileTools
from memory_bank import Banking, bank_in


async def _no_graph(_: Bank) -> str | None:
    return None


def offered(bank: Banking) -> Banking:
    bank.offer(FileTools(bank.banks, bank.records, bank.clock, _no_graph))
    return bank


@pytest.mark.parametrize("tool", ["get_memory_bank_status", "list_memory_bank_files"])
async def test_names_that_no_tool_can_reach_are_a_warning(tmp_path: Path, tool: str) -> None:
    async with bank_in(tmp_path / "home") as bank:
        offered(bank).put("progress.md", "# Progress\n")
        assert "out_of_reach" not in [w["code"] for w in (await bank(tool)).get("warnings", [])]
        (tmp_path / "secret.md").write_text("x", encoding="utf-8")
        bank.put(".config/deep.md", "x")
        for name, target in {"out.md": "../../secret.md", "in.md": ".config/deep.md"}.items():
            (bank.folder / name).symlink_to(target)
        (bank.folder / ".#progress.md").symlink_to("nowhere")  # as editors mark what is open
        if os.name == "posix":
            bank.put("Plan: Q3.md", "x")
            bank.put("turned:\u202e.md", "x")
        (warning,) = (await bank(tool))["warnings"]
        assert warning["code"] == "out_of_reach"
        named = ['"in.md"', '"out.md"']
        if os.name == "posix":
            named = ['"Plan: Q3.md"', *named, '"turned:\\u202e.md"']
        assert f"No tool can read {', '.join(named)}." in warning["message"]
