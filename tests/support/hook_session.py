"""A session with hooks: what it is told and does, over a library in memory."""

from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everkept.core.ports import RecordStore
from everkept.core.projects import find_workspace
from everkept.core.records import Record
from everkept.core.runtime import run_without_loop
from everkept.engines.memory.library import MemoryLibrary
from everkept.families.bank.model import VERSIONS_FOLDER, name_versions_folder
from everkept.hooks.events import HookContext, HookEvent
from everkept.hooks.workspace import SessionLedger
from everkept.settings import Settings
from everkept.values import replace
from records import DAY_ONE, batch

DAY = 86_400 * 1_000_000
NOW = DAY_ONE + 3 * DAY
SESSION = "s-1"


def here(work: Coroutine[Any, Any, Any]) -> Any:
    """As a hook runs it, without an event loop."""
    return run_without_loop(work)


def trust_bank(data_dir: Path, bank: Path) -> None:
    """What `everkept bank trust` leaves."""
    (data_dir / VERSIONS_FOLDER / name_versions_folder(str(bank.resolve()))).mkdir(parents=True)


@dataclass
class Desk:
    """A folder that is a repository, its project, and the data folder beside it."""

    root: Path
    library: MemoryLibrary = field(default_factory=MemoryLibrary)
    session: str = SESSION

    def __post_init__(self) -> None:
        self.folder = self.root / "shop"
        (self.folder / ".git").mkdir(parents=True)
        (self.root / "data").mkdir()
        self.settings = Settings(data_dir=self.root / "data", embedding_model="none")
        home = find_workspace(self.folder)
        assert home is not None
        project = here(self.library.create(home.name, ""))
        here(self.library.link_workspace(home.key, project))
        self.project: RecordStore = here(self.library.open(project.name))[1]

    def stored(self, *records: Record) -> None:
        here(self.project.commit(batch(*records)))

    def stored_of_user(self, *records: Record) -> None:
        here(here(self.library.open_user_store()).commit(batch(*records)))

    def stored_of_past(self, *records: Record) -> None:
        here(here(self.library.open_history_store()).commit(batch(*records)))

    def event(self, name: str, **more: Any) -> HookEvent:
        fields = {"session": self.session, "folder": self.folder}
        return HookEvent(name, **(fields | more))

    def around(self, **settings: Any) -> HookContext:
        return HookContext(
            settings=replace(self.settings, **settings),
            room=self.library,
            ledger=SessionLedger(self.settings.data_dir / "hooks", self.session),
            now=NOW,
            run=here,
        )
