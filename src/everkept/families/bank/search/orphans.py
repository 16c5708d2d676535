"""What the index has of banks that lie elsewhere by now: nobody asks for it again."""

import logging
import time
from collections import defaultdict
from collections.abc import Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import Record, Where
from everkept.errors import EverkeptError
from everkept.families.bank.banks import SSH, Banks, exists
from everkept.families.bank.model import INDEXED_FILE
from everkept.families.bank.search.writing import IndexWriter, address_in

MOST_AT_ONCE = 64  # files that are forgotten together

log = logging.getLogger(__name__)


async def forget_moved(
    banks: Banks, writer: IndexWriter, store: RecordStore, own: str, limit: float | None
) -> None:
    """Removes the sections of banks whose folder is gone, as far as the seconds suffice.

    A bank in another place has another scope, and indexes its files there. `own` is the scope of
    the bank that is in use.
    """
    where = Where(kinds=(INDEXED_FILE,))
    if await store.how_many(where) == await store.how_many(Where(where.kinds, scopes=(own,))):
        return
    scopes: defaultdict[str, list[Record]] = defaultdict(list)
    for file in await store.scan(where):
        if file.scope != own:
            scopes[file.scope].append(file)
    started = time.monotonic()
    for scope, files in scopes.items():
        if not await _is_gone(banks, files):
            continue
        log.info("forgetting %d files of %s", len(files), address_in(files[0]))
        for start in range(0, len(files), MOST_AT_ONCE):
            if limit and time.monotonic() - started > limit:
                return
            some = files[start : start + MOST_AT_ONCE]
            await writer.remove(store, scope, [file.name or "" for file in some])


async def _is_gone(banks: Banks, files: Sequence[Record]) -> bool:
    """False for another machine, which may be off, and where it is not known."""
    address = next(filter(None, map(address_in, files)), None)
    if address is None or address.startswith(SSH):
        return False
    try:
        return not await exists(await banks.at(address))
    except EverkeptError:
        return False
