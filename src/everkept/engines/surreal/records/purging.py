"""Removing for good: things, what hangs on them, and all that the log and the indexes say."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from everkept.core.ports import Purged
from everkept.core.records import Change, Record, Ref
from everkept.engines.surreal.records.commit import log
from everkept.engines.surreal.records.meaning import forget_vectors
from everkept.engines.surreal.records.rows import Row, id_of, kept, record_from, things
from everkept.engines.surreal.records.tables import State, Tables, Writing
from everkept.engines.surreal.records.wording import rewrite_words
from everkept.engines.wording import Shift
from everkept.values import Value

_ALL = "SELECT * FROM $ids"
_BELOW = "SELECT * FROM record WITH INDEX record_parent WHERE parent IN $ids"
_ENDS = "SELECT ->link.* AS going, <-link.* AS coming FROM $ids"


class Belongings(Value):
    """Rows by id: of records with all below them, and of links with those at the records."""

    records: Mapping[str, Row]
    links: Mapping[str, Row]

    def before(self) -> dict[str, Record]:
        return {record_id: record_from(row) for record_id, row in self.records.items()}

    def ages(self) -> dict[str, int]:
        return {record_id: row["age"] for record_id, row in self.records.items()}


async def purge(tables: Tables, refs: Sequence[Ref], at: int) -> Purged:
    """Raises Contended where another came in between."""
    state = await tables.state()
    tables.check_open(state)
    doomed = await belongings(tables, refs)
    if doomed.records or doomed.links:
        writing = Writing()
        erase(writing, state, doomed)
        await rewrite_words(tables, Shift(doomed.before(), {}, doomed.ages()), writing)
        log(writing, Change(state.seq + 1, at, "purge", "", None, ()))
        await tables.write(state, writing, {"seq": state.seq + 1, "turn": state.turn + 1})
    return Purged(len(doomed.records), len(doomed.links), complete=True)


async def belongings(tables: Tables, refs: Iterable[Ref]) -> Belongings:
    """What goes with these, deleted ones too."""
    wanted = list(dict.fromkeys(refs))
    ids = things("record", (ref.id for ref in wanted if ref.subject == "record"))
    found = await _rows(tables, _ALL, ids)
    level = found
    while level := {
        record_id: row
        for record_id, row in (await _rows(tables, _BELOW, _ids(level))).items()
        if record_id not in found
    }:
        found = found | level
    links = await _rows(
        tables, _ALL, things("link", (ref.id for ref in wanted if ref.subject == "link"))
    )
    if found:
        for row in await tables.ask(_ENDS, ids=_ids(found)):
            links |= {id_of(link["id"]): link for side in row.values() for link in side}
    return Belongings(found, links)


def erase(
    writing: Writing, state: State, doomed: Belongings, told_anew: Sequence[Any] = ()
) -> None:
    """All but the words; `told_anew` are the ids of edits that are written over."""
    for subject, items in (("record", doomed.records), ("link", doomed.links)):
        if items:
            named = writing.value([kept(item) for item in items])
            writing.add(
                "DELETE (SELECT VALUE id FROM edit WITH INDEX edit_item "
                f"WHERE item IN {named} AND subject = '{subject}' "
                f"AND id NOT IN {writing.value(told_anew)}) RETURN NONE"
            )
    writing.delete(_ids(doomed.links))
    writing.delete(_ids(doomed.records))
    writing.delete(things("access", doomed.records))
    forget_vectors(writing, state, doomed.records)


async def _rows(tables: Tables, text: str, ids: Sequence[Any]) -> dict[str, Row]:
    return {id_of(row["id"]): row for row in await tables.ask(text, ids=ids)} if ids else {}


def _ids(rows: Mapping[str, Row]) -> list[Any]:
    return [row["id"] for row in rows.values()]
