"""What was changed in a database server from outside, for the doctor and to explain an unexpected error."""

from collections.abc import Sequence

from everkept.app.engines import make_library
from everkept.core.answers import TableFault
from everkept.core.ports import Library, RecordStore
from everkept.core.records import RecordFilter
from everkept.core.sessions import is_private_name
from everkept.core.times import Clock
from everkept.errors import EverkeptError, StoreDamaged
from everkept.settings import Settings, get_title
from everkept.values import Value

MAX_SHOWN_FAULTS = 3
PAGE_ITEMS = 500  # read together


class ServerFaults(Value):
    """Faults of the tables, sentences about the stored data, and the number of stores that were checked."""

    tables: Sequence[TableFault]
    stores: Sequence[str]
    count: int


async def find_server_faults(settings: Settings, clock: Clock, *, full: bool = False) -> ServerFaults:
    """Compare the tables with those that Everkept creates, then check the data. With `full`, read all of it."""
    library = make_library(settings, clock, standing_by=False, founds=False)
    try:
        tables = await library.find_table_faults()
        if any(fault.problem != "open" for fault in tables):
            return ServerFaults(tables, (), 0)
        await library.read_catalog_data()
        found: list[str] = []
        stores = await _open_stores(library)
        for title, store in stores:
            if faults := await _find_store_faults(store, full=full):
                found.append(f"{title} has {', '.join(faults[:MAX_SHOWN_FAULTS])}.")
        return ServerFaults(tables, found, len(stores))
    finally:
        await library.close()


async def find_server_damage(settings: Settings, clock: Clock) -> StoreDamaged | None:
    """Return the first fault of a database server, which explains an error that nothing else explains."""
    try:
        found = await find_server_faults(settings, clock)
    except StoreDamaged as error:
        return error
    except (EverkeptError, RuntimeError):  # the error itself says more
        return None
    broken = [fault for fault in found.tables if fault.problem != "open"]
    if not broken and not found.stores:
        return None
    what = describe_tables(settings, broken) if broken else found.stores[0]
    return StoreDamaged(what, hint="To see all faults, run `everkept doctor --full`.")


def describe_tables(settings: Settings, faults: Sequence[TableFault]) -> str:
    shown = ", ".join(fault.description for fault in faults[:MAX_SHOWN_FAULTS])
    more = f" and {len(faults) - MAX_SHOWN_FAULTS} more" if len(faults) > MAX_SHOWN_FAULTS else ""
    return f"The tables in {get_title(settings.engine)} are not as Everkept creates them: {shown}{more}."


async def _open_stores(library: Library) -> list[tuple[str, RecordStore]]:
    stores = [("The user store", await library.open_user_store())]
    stores.append(("The history", await library.open_history_store()))
    for project in await library.list_projects():
        title = "A private store" if is_private_name(project.name) else f'Project "{project.name}"'
        stores.append((title, await library.get_store(project)))
    return stores


async def _find_store_faults(store: RecordStore, *, full: bool) -> list[str]:
    faults = await store.find_faults()
    if full:
        try:
            await _read_everything(store)
        except StoreDamaged:
            faults = [*faults, "rows that cannot be read"]
    return faults


async def _read_everything(store: RecordStore) -> None:
    after, seq = "", 0
    while page := await store.scan(RecordFilter(deleted=None), after=after or None, limit=PAGE_ITEMS):
        after = page[-1].id
    await store.scan_links(deleted=None)
    while changes := await store.read_changes(after=seq, limit=PAGE_ITEMS):
        seq = changes[-1].seq
