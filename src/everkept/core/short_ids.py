"""Ids by their first characters: as lists show them, and as people type them."""

from collections.abc import Iterable, Sequence
from itertools import takewhile

from everkept.core.records import Record
from everkept.core.store import RecordStore
from everkept.core.text import clip_text
from everkept.errors import AmbiguousId

SHOWN_CHARACTERS = 8
MIN_TYPED_CHARACTERS = 4  # fewer are a typing error
MAX_MATCHES = 50
MAX_TITLE_CHARACTERS = 60


def shorten_ids(ids: Sequence[str], dropped: str = "") -> dict[str, str]:
    """Map each id to its first eight characters, or as many as distinguish these ids.

    A head such as `conv_` does not count. The head `dropped` is omitted, because people may omit it.
    """
    whole = sorted({each.removeprefix(dropped) for each in ids})
    shown: dict[str, str] = {}
    for at, tail in enumerate(whole):
        neighbors = whole[max(at - 1, 0) : at] + whole[at + 1 : at + 2]
        shared = max((_count_shared(tail, other) for other in neighbors), default=0)
        shown[tail] = tail[: max(tail.find("_") + 1 + SHOWN_CHARACTERS, shared + 1)]
    return {each: shown[each.removeprefix(dropped)] for each in ids}


def _count_shared(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


async def find_by_prefix(
    stores: Iterable[RecordStore], typed: str, heads: Sequence[str], kinds: Sequence[str]
) -> list[tuple[RecordStore, Record]]:
    """Return the records whose id begins with the typed text, with or without one of these heads."""
    whole = [typed] if typed.startswith(tuple(heads)) else [head + typed for head in heads]
    if min(len(each) - len(head) for each in whole for head in heads if each.startswith(head)) < MIN_TYPED_CHARACTERS:
        return []
    return [
        (store, record)
        for store in stores
        for prefix in dict.fromkeys(whole)
        for record in await store.find_by_prefix(prefix, kinds, MAX_MATCHES)
    ]


def require_one_id(kind: str, typed: str, found: Sequence[Record]) -> str | None:
    """Return the id of the one live record, otherwise of the one deleted record, or None. Raise AmbiguousId."""
    live = [record for record in found if record.deleted_at is None]
    titles = {record.id: clip_text(record.name or record.text, MAX_TITLE_CHARACTERS) for record in live or found}
    if len(titles) > 1:
        raise AmbiguousId(kind, typed, titles)
    return next(iter(titles), None)
