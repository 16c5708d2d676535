"""The five core files: made when they are missing, and under the names of today."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.families.bank.core_files import ensure_core_files, find_name_warnings, migrate_names, prepare_core_files
from everkept.families.bank.model import CORE_FILES, LEGACY_NAMES
from memory_bank import Banking, bank_in


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[Banking]:
    async with bank_in(tmp_path, made=False) as team:
        yield team


async def test_a_bank_is_made_where_no_folder_is(team: Banking) -> None:
    assert sorted(await ensure_core_files(team.bank)) == sorted(CORE_FILES)
    assert team.names() == sorted(CORE_FILES)


async def test_a_second_time_nothing_happens(team: Banking) -> None:
    await ensure_core_files(team.bank)
    team.put("progress.md", "mine")
    assert await ensure_core_files(team.bank) == []
    assert team.get("progress.md") == "mine"


async def test_files_with_old_names_are_renamed_and_not_made_again(team: Banking) -> None:
    for old in LEGACY_NAMES.values():
        team.put(old, f"{old} of the team")
    prepared = await prepare_core_files(team.bank)
    assert prepared.created == ["progress.md"]
    assert prepared.renamed == list(LEGACY_NAMES.values())
    assert team.names() == sorted(CORE_FILES)
    assert team.get("active-context.md") == "activeContext.md of the team"


async def test_a_core_file_in_other_case_is_there(team: Banking) -> None:
    team.put("Progress.md", "mine")
    assert "progress.md" not in await ensure_core_files(team.bank)
    assert sum(name.lower() == "progress.md" for name in team.names()) == 1


async def test_an_old_file_beside_the_new_one_is_left_alone(team: Banking) -> None:
    team.put("decisionLog.md", "old")
    team.put("decision-log.md", "new")
    migrated = await migrate_names(team.bank)
    assert (migrated.renamed, migrated.skipped) == ([], ["decisionLog.md"])
    assert (team.get("decisionLog.md"), team.get("decision-log.md")) == ("old", "new")
    [warning] = find_name_warnings(team.names()) or []
    assert warning.code == "two_names"
    assert "decisionLog.md" in warning.message


def test_one_name_for_each_file_needs_no_warning() -> None:
    assert find_name_warnings(CORE_FILES) is None
