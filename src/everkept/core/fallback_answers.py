"""Answers to questions by several simpler questions, for stores that have no quicker way."""

from collections.abc import Awaitable, Callable, Sequence

from everkept.core.questions import FindLinks
from everkept.core.records import Link, Where
from everkept.core.store import RecordStore
from everkept.core.subgraphs import Selection, Subgraph, assemble, cut, other_ends
from everkept.core.walking import Hops, beyond


async def hop_by_hop(
    ask: Callable[[FindLinks], Awaitable[list[Link]]],
    ids: Sequence[str],
    hops: Hops,
    *,
    fits: Callable[[Link], bool] | None = None,
) -> list[list[Link]]:
    """Answer `WalkLinks` by a question for each hop; go only along links that fit."""
    walked: list[list[Link]] = []
    seen, met, edge = set(ids), set[str](), list(ids)
    for _ in range(hops.count):
        if not edge:
            break
        found = await ask(FindLinks(edge, hops.direction, hops.sources, hops.limit))
        new = [x for x in found if x.id not in met and (fits is None or fits(x))]
        if not new:
            break
        walked.append(new)
        met.update(link.id for link in new)
        edge = beyond(new, seen, hops.width)
        seen.update(edge)
    return walked


async def ask_for_subgraph(store: RecordStore, wanted: Selection) -> Subgraph:
    """Answer `ReadSubgraph` by four other questions."""
    kind = wanted.kind
    if wanted.ids is None:
        where = Where(kinds=(kind,))
        records = await store.scan(
            where, order=wanted.order, after=wanted.after, limit=wanted.looked_for
        )
    else:
        records = [record for record in await store.get(wanted.ids) if record.kind == kind]
    records, has_more = cut(wanted, records)
    ids = [record.id for record in records]
    if not ids:
        return Subgraph([], [], has_more)
    children = await store.scan(Where(kinds=(wanted.leaf_kind,), parents=tuple(ids)))
    links = await store.links(ids, direction=wanted.direction, sources=(kind,))
    others = await store.get(other_ends(records, links))
    return assemble(records, children, links, others, has_more=has_more)
