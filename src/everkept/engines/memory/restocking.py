"""Making things in the reference engine what they are elsewhere."""

from collections.abc import Mapping

from everkept.core.copies import Stock
from everkept.core.records import Record
from everkept.engines.memory.contents import Contents
from everkept.engines.restocking import check_belonging, is_retold


def restocked(contents: Contents, stock: Stock) -> Contents:
    """Raises Conflict where two would stand for the same, or belong to what is not there."""
    left = contents.without(*contents.with_belongings(stock.gone))
    kept = (c for c in left.changes if stock.log_from is None or c.seq < stock.log_from)
    log = {change.seq: change for change in (*kept, *stock.changes)}
    new = Contents(
        {**left.records, **{record.id: record for record in stock.records}},
        {**left.links, **{link.id: link for link in stock.links}},
        [log[seq] for seq in sorted(log)],
    )
    check_belonging((*stock.records, *stock.links), new.records)
    new.check_unique()
    return new


def retold(before: Mapping[str, Record], after: Mapping[str, Record]) -> list[str]:
    """The ids of those that are gone, or whose vector was made of another text or name."""
    return [
        old.id
        for old in before.values()
        if (new := after.get(old.id)) is None or is_retold(old, new)
    ]
