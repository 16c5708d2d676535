"""What holds for every stock, whichever engine it is put into."""

from collections.abc import Container, Iterable

from everkept.core.copies import Stock
from everkept.core.records import Link, Record
from everkept.errors import Conflict


def records_of(stock: Stock) -> list[str]:
    """The ids of all records that it says something of, or that something in it belongs to."""
    named = [record.id for record in stock.records]
    ends = [end for item in (*stock.records, *stock.links) for end in _ends(item)]
    embedded = [each.id for items in stock.vectors.values() for each in items]
    return list(dict.fromkeys((*named, *ends, *stock.accesses, *embedded)))


def check_belonging(items: Iterable[Record | Link], there: Container[str]) -> None:
    """Raises Conflict where one belongs to what will not be there."""
    for item in items:
        for end in _ends(item):
            if end not in there:
                raise Conflict(
                    f"The {item.ref.subject} {item.id} belongs to {end}, which is not here.",
                    id=item.id,
                )


def is_retold(old: Record, new: Record) -> bool:
    """Whether the vector of the one is none of the other."""
    return (old.text, old.name) != (new.text, new.name)


def _ends(item: Record | Link) -> tuple[str, ...]:
    if isinstance(item, Link):
        return item.source, item.target
    return () if item.parent is None else (item.parent,)
