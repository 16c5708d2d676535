"""The five core files of a bank: under the names of today, and all of them there."""

from collections.abc import Collection

from everkept.errors import EverkeptError
from everkept.families.bank.banks import Bank
from everkept.families.bank.files.bank_files import LOCK, Change, edit_locked, file_names
from everkept.families.bank.files.names import written_name
from everkept.families.bank.model import LEGACY_NAMES
from everkept.families.bank.text.templates import TEMPLATES
from everkept.tools.tool import Warned
from everkept.values import Value


class Migrated(Value):
    """Old names that became new ones, and those that stay because the new one is taken."""

    renamed: list[str]
    skipped: list[str]


class Prepared(Value):
    """The core files that were made, and old names that became new ones."""

    created: list[str]
    renamed: list[str]


async def ensure_core_files(bank: Bank) -> list[str]:
    """Makes those that are missing; the names it made."""
    return (await prepare(bank)).created


async def prepare(bank: Bank) -> Prepared:
    """Makes the core files that are missing, and gives old names up for those of today.

    What is there is never overwritten, so a second time nothing happens.
    """
    return await bank.files.run_locked(LOCK, lambda: _prepare_locked(bank))


async def migrate_names(bank: Bank) -> Migrated:
    """Gives the core files with an old name the one of today."""
    return await bank.files.run_locked(LOCK, lambda: _migrate_locked(bank))


def name_warnings(names: Collection[str]) -> list[Warned] | None:
    """About core files that a folder has under both of their names."""
    doubled = [
        Warned("two_names", f"{old} is not used, because {today} is there too: merge the two.")
        for today, old in LEGACY_NAMES.items()
        if today in names and old in names
    ]
    return doubled or None


async def _prepare_locked(bank: Bank) -> Prepared:
    migrated = await _migrate_locked(bank)
    try:
        made = await edit_locked(bank, {name: _begun(text) for name, text in TEMPLATES.items()})
    except EverkeptError:
        for old in migrated.renamed:
            await bank.files.rename(written_name(old), old)
        raise
    return Prepared([file.name for file in made.values()], migrated.renamed)


async def _migrate_locked(bank: Bank) -> Migrated:
    there = set(await file_names(bank))
    migrated = Migrated([], [])
    for today, old in LEGACY_NAMES.items():
        if old in there and today in there:
            migrated.skipped.append(old)
        elif old in there:
            await bank.files.rename(old, today)
            migrated.renamed.append(old)
    return migrated


def _begun(template: str) -> Change:
    return lambda before: template if before is None else None
