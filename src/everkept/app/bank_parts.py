"""The parts of the memory bank, as settings say."""

import os
from pathlib import Path

from everkept.app.bank_care import BankCare
from everkept.app.bank_projects import BankProjects
from everkept.app.keeping import Keeper
from everkept.app.workspaces import checkout_of
from everkept.core.files import FileStores
from everkept.core.ports import Library
from everkept.core.times import Clock
from everkept.families.bank.care.care_tools import Surroundings
from everkept.families.bank.model import BankOptions
from everkept.families.bank.toolset import BankFamily, Surface
from everkept.filestores.finding import Files
from everkept.filestores.ssh_place import SshOptions
from everkept.settings import AUTO, Settings, environment_names, remote_bank
from everkept.tools.tool import Tool
from everkept.values import Value


class BankParts(Value):
    """What there is of the memory bank where it is offered."""

    family: BankFamily
    files: FileStores
    care: BankCare

    async def close(self) -> None:
        await self.care.close()
        await self.files.close()


def build_bank(settings: Settings, library: Library, keeper: Keeper, clock: Clock) -> BankParts:
    remote = remote_bank(settings)
    folder = settings.path  # over HTTP only where it is given
    named = None if settings.project in (None, AUTO) else settings.project
    options = BankOptions(
        place=remote or (None if folder is None else str(_home_of_bank(folder, settings.folder))),
        folder=settings.folder,
        username=settings.username,
        mode=settings.mode,
        mask_secrets=settings.mask_secrets,
        read_only=settings.read_only,
        free_paths=settings.transport != "http",
    )
    files = Files(SshOptions(key=settings.ssh_key, known_hosts=settings.known_hosts))
    projects = BankProjects(
        library,
        configured=named,
        place=remote or (None if folder is None else _home_of_bank(folder, settings.folder)),
        on_open=keeper.meet,
    )
    start = os.fspath(settings.path or Path())
    around = Surroundings(start, environment_names(), _current_folder())
    family = BankFamily(files, library, projects, keeper.indexer, clock, options, around)
    return BankParts(family, files, BankCare(family.banks, projects, family.mirror))


def _home_of_bank(folder: Path, name: str) -> Path:
    """Inside a repository with a bank at its root, that one, unless the folder has its own."""
    root = checkout_of(folder)
    if root is not None and not (folder / name).is_dir() and (root / name).is_dir():
        return root
    return folder.absolute()


def _current_folder() -> str | None:
    """None where it was removed under the program."""
    try:
        return str(Path.cwd())
    except OSError:
        return None


def bank_tools(settings: Settings, bank: BankParts) -> list[Tool]:
    surface = Surface(extras=settings.bank_extras, of_mode=settings.mode_tools)
    return bank.family.tools(surface)
