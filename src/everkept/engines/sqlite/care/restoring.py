"""Every database of a data folder replaced by its copy from a backup, `_meta.db` last."""

from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from everkept.core.care import Added, Prepared, Progress
from everkept.core.disk import make_folder
from everkept.core.times import Clock
from everkept.engines.sqlite import unfinished
from everkept.engines.sqlite.care.copying import HISTORY, META, USER, Kept, catalogue
from everkept.engines.sqlite.care.decisions import keep_decisions, switched_off
from everkept.engines.sqlite.care.replacing import (
    Live,
    Numbers,
    add_project,
    bury,
    fold_all,
    leave_out_lost,
    prepare_catalogue,
    prepare_store,
    put_catalogue,
    put_store,
    remove,
)
from everkept.engines.sqlite.care.scratch import scratch
from everkept.engines.sqlite.connections import create
from everkept.engines.sqlite.examining import at_rest
from everkept.engines.sqlite.founding import make_library, make_store
from everkept.engines.sqlite.schema import PROJECT
from everkept.engines.sqlite.sizes import usable


class LockedFolder:
    """A data folder in which no other process writes."""

    def __init__(self, live: Live) -> None:
        self._live = live

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that could be lost."""
        return self._live.is_empty

    def prepare(
        self, stage: Path, backup: Path, safety: Path | None, kept_notes: Sequence[str], at: int
    ) -> Prepared:
        """Make the copies in the stage fit to replace the databases. The restore is unfinished
        from now on.

        Decisions since the backup stay: projects that are off, tokens, and notes with these keys.
        """
        live, meta = self._live, stage / META
        leave_out_lost(meta)
        now = live.databases.get(META)
        if now is not None:
            keep_decisions(now, meta, kept_notes, at, was_empty=live.is_empty)
        off = switched_off(meta)
        self._number(stage)
        unfinished.begin(stage, backup, safety)
        return Prepared(off, decisions_lost=now is None)

    def put(self, stage: Path, report: Progress) -> list[str]:
        """Give each database its new content; return the files that cannot be removed yet."""
        live = self._live
        names = [*(kept.path for kept in _listed(stage)), USER, HISTORY]
        gone = [kept.path for kept in live.projects if kept.path not in names]
        for number, name in enumerate(names):
            put_store(live, name, stage / name, lambda _done, _total: None)
            report(number + 1, len(names) + 1)
        bury(live, gone)
        put_catalogue(live, stage / META)
        unfinished.end(live.folder)
        report(len(names) + 1, len(names) + 1)
        fold_all(live.folder, [META, *names])
        return remove(live.folder, gone)

    def _number(self, stage: Path) -> None:
        """Brings the copies up to date, and their numbers behind those of what they replace."""
        there = {kept.id: kept for kept in self._live.projects}
        generations: dict[str, int] = {}
        for kept in _listed(stage):
            numbers = self._live.numbers(kept.path)
            if before := there.get(kept.id):
                known = Numbers(generation=before.generation)
                numbers = numbers.beyond(self._live.numbers(before.path)).beyond(known)
            archived = kept.status == "archived"
            generations[kept.id] = prepare_store(stage / kept.path, numbers, archived=archived)
        for name in (USER, HISTORY):
            if not (stage / name).exists():
                create(stage / name, PROJECT)
            prepare_store(stage / name, self._live.numbers(name))
        prepare_catalogue(stage / META, generations)


def restored_beside(folder: Path, copy: Path, name: str, before: Path | None, at: int) -> Added:
    generation = prepare_store(copy, Numbers())
    like = Kept(copy.stem, name, "active", f"projects/{copy.name}", generation, None)
    return add_project(folder, copy, like, at, before)


def found(folder: Path, clock: Clock) -> None:
    """Makes the files that every data folder has, where they are missing."""
    with usable(folder):
        for part in ("projects", "archive"):
            make_folder(folder / part)
        if not (folder / META).exists():
            make_library(folder, clock)
        for name in (USER, HISTORY):
            if not (folder / name).exists():
                make_store(folder / name)


@contextmanager
def staged(folder: Path) -> Generator[Path, None, None]:
    """Where copies are verified; it stays only where a restore was cut short."""
    with usable(folder):
        make_folder(folder)
    with scratch(folder, unfinished.STAGE, unfinished.is_unfinished) as stage:
        yield stage


def _listed(stage: Path) -> list[Kept]:
    with closing(at_rest(stage / META)) as meta:
        return catalogue(meta)
