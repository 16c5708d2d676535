"""Everything that a library holds, copied into another one and compared with it."""

import json
from collections.abc import Callable, Iterable, Sequence

from everkept.app.migrating.copying import ALL, copy, expect_own, foreign_change
from everkept.app.migrating.unfinished import BROUGHT, UNDER_WAY
from everkept.core.ports import Library, RecordStore
from everkept.core.projects import USER, Project
from everkept.core.store_values import Holdings
from everkept.errors import Conflict
from everkept.values import Value, replace

HISTORY = "@history"
EVERY_SEARCH = 1_000_000

Progress = Callable[[int, int], None]


class Copied(Value):
    """One store, after it was found to be the same in both places."""

    store: str
    records: int
    links: int
    log_entries: int
    vectors: int
    sha256: str


class Migrated(Value):
    source: str
    target: str
    projects: int
    stores: Sequence[Copied]


class End(Value):
    """One end of it: a library, and what people call it."""

    library: Library
    name: str


async def migrate(source: End, target: End, model: str, progress: Progress) -> Migrated:
    """Interrupted, the same again goes on. Raises Conflict where the target holds other things,
    also where somebody else has put them there since then."""
    holdings = await source.library.holdings()
    if origin := holdings.notes.get(UNDER_WAY):
        raise _unfinished(source, origin)
    await _begin(source, target)
    note = {UNDER_WAY: source.name, BROUGHT: json.dumps(sorted(_ids(holdings)))}
    # Active for now: no store of an archived project is written to.
    active = [replace(project, status="active") for project in holdings.projects]
    await target.library.take_over(
        replace(holdings, projects=active, notes={**holdings.notes, **note})
    )
    pairs = await _stores(source.library, target.library, holdings.projects, active)
    total = sum([await store.how_many(ALL) for _, store, _ in pairs])
    done = 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    copied: list[Copied] = []
    for name, original, replica in pairs:
        found = await copy(original, replica, model, step)
        counts = found.records, found.links, found.changes, found.vectors
        copied.append(Copied(name, *counts, found.digest))
    await _add_asked(source.library, target.library)
    await _end(source.library, target.library, holdings)
    return Migrated(source.name, target.name, len(holdings.projects), copied)


async def _begin(source: End, target: End) -> None:
    begun = await target.library.note(UNDER_WAY)
    if begun == source.name:
        await _expect_untouched(source, target)
        return
    if begun is not None:
        raise _unfinished(target, begun)
    held = await target.library.holdings()
    stores = [await target.library.user(), await target.library.history()]
    if held.projects or held.tokens or any([await store.how_many(ALL) for store in stores]):
        raise Conflict(
            f"{target.name} holds something already, and nothing there is written over.",
            hint="Name an empty place. `everkept export` and `import` bring two together.",
        )
    await target.library.set_note(UNDER_WAY, source.name)


async def _expect_untouched(source: End, target: End) -> None:
    """Before an unfinished copy is gone on with: what somebody else has put there would go."""
    there, here = await target.library.holdings(), await source.library.holdings()
    brought: list[str] = json.loads(there.notes.get(BROUGHT, "[]"))
    if foreign := _ids(there) - _ids(here) - set(brought):
        named = [project.name for project in there.projects if project.id in foreign]
        what = f"projects ({', '.join(named)})" if named else "tokens"
        raise Conflict(
            f"Somebody else has made {what} in the unfinished copy at {target.name}.",
            hint="Copy into another, empty place, and stop the programs that use this one.",
        )
    ids = {project.id for project in there.projects}
    both = [project for project in here.projects if project.id in ids]
    copies = [replace(project, status="active") for project in both]
    for _, original, copied in await _stores(source.library, target.library, both, copies):
        expect_own(await foreign_change(original, copied))


def _ids(holdings: Holdings) -> set[str]:
    tokens: Iterable[str] = (token.id for token, _ in holdings.tokens)
    return {*(project.id for project in holdings.projects), *tokens}


def _unfinished(end: End, origin: str) -> Conflict:
    return Conflict(
        f"{end.name} holds an unfinished copy of {origin}.",
        hint="Finish that one first, or name another place.",
    )


async def _end(source: Library, target: Library, holdings: Holdings) -> None:
    """Raises Conflict where projects came, went or changed meanwhile."""
    if await source.holdings() != holdings:
        raise Conflict(
            "Projects, tokens or settings changed while everything was copied.",
            hint="The same command again brings the rest over.",
        )
    await target.take_over(holdings)  # without the note, and with projects archived that were


async def _stores(
    source: Library, target: Library, projects: Sequence[Project], copies: Sequence[Project]
) -> list[tuple[str, RecordStore, RecordStore]]:
    pairs = [
        (USER, await source.user(), await target.user()),
        (HISTORY, await source.history(), await target.history()),
    ]
    for project, copied in zip(projects, copies, strict=True):
        pairs.append((project.name, await source.store_of(project), await target.store_of(copied)))
    return pairs


async def _add_asked(source: Library, target: Library) -> None:
    """What was asked of the past, and how often tools were called."""
    if not await target.searches(limit=1):
        searches = await source.searches(limit=EVERY_SEARCH)
        await target.add_searches(searches[::-1])
    if not await target.usage():
        await target.add_usage(await source.usage())
