"""Whether what is derived from the records fits them, and nothing points at what is not there."""

from everkept.engines.postgres.changing.belongings import aged_record
from everkept.engines.postgres.changing.turns import Place, check_there
from everkept.engines.postgres.changing.wording import new_words
from everkept.engines.postgres.changing.writing import listed
from everkept.engines.postgres.connecting.database import Cursor
from everkept.engines.postgres.records.asking import ask
from everkept.engines.postgres.records.rows import RECORD_COLUMNS, kept
from everkept.engines.wording import Shift

SAMPLE = 200  # records whose words are made anew and compared

_RECORDS = "FROM records r JOIN stores s ON s.number = r.store WHERE r.store = %s AND "
_LINKS = "FROM links l JOIN stores s ON s.number = l.store WHERE l.store = %s AND "
_IS_THERE = "EXISTS (SELECT FROM records x WHERE x.store = {0}.store AND x.id = {1})"
# What each of these finds is wrong, however many there are.
_FINDINGS = {
    "records are not in the word index": f"{_RECORDS} r.deleted_at IS NULL AND r.words IS NULL",
    "entries of the word index have no record": (
        f"{_RECORDS} r.deleted_at IS NOT NULL AND r.words IS NOT NULL"
    ),
    "records belong to one that is not there": (
        f"{_RECORDS} r.parent IS NOT NULL AND NOT {_IS_THERE.format('r', 'r.parent')}"
    ),
    "links have an end that is not there": (
        f"{_LINKS} NOT ({_IS_THERE.format('l', 'l.source')} "
        f"AND {_IS_THERE.format('l', 'l.target')})"
    ),
    "names are not kept from being given twice": (
        f"{_RECORDS} (r.stands_for IS NULL) <> (r.name_key IS NULL OR r.deleted_at IS NOT NULL)"
    ),
    "links are not kept from being made twice": (
        f"{_LINKS} (l.says IS NULL) <> (l.deleted_at IS NOT NULL)"
    ),
    "records are younger than the store says": f"{_RECORDS} r.age > s.ages",
    "links are younger than the store says": f"{_LINKS} l.age > s.ages",
    "changes are newer than the store says": (
        "FROM changes c JOIN stores s ON s.number = c.store WHERE c.store = %s AND c.seq > s.seq"
    ),
    "edits belong to no change": (
        "FROM edits e WHERE e.store = %s AND NOT EXISTS "
        "(SELECT FROM changes c WHERE c.store = e.store AND c.seq = e.seq)"
    ),
    "vectors belong to no record": (
        f"FROM vectors v WHERE v.store = %s AND NOT {_IS_THERE.format('v', 'v.record')}"
    ),
}
_SAMPLED = (
    f"SELECT r.age, {RECORD_COLUMNS} FROM records r WHERE r.store = %s AND r.deleted_at IS NULL "
    "ORDER BY random() LIMIT %s"
)
_COMPARED = (
    "SELECT count(*) FROM json_to_recordset(%s::json) AS n(id text, words tsvector) "
    "JOIN records r ON r.store = %s AND r.id = n.id WHERE r.words IS DISTINCT FROM n.words"
)


def faults(cursor: Cursor, place: Place) -> list[str]:
    check_there(cursor, place)
    asked = {
        what: ask(cursor, f"SELECT count(*) {text}", place.number)
        for what, text in _FINDINGS.items()
    }
    counts = {what: answer.fetchall()[0][0] for what, answer in asked.items()}
    stale = _stale_words(cursor, place.number)
    if stale:
        counts[f"of {SAMPLE} records are found by words that are not theirs"] = stale
    return [f"{count} {what}" for what, count in counts.items() if count]


def _stale_words(cursor: Cursor, store: int) -> int:
    sampled = [aged_record(row) for row in ask(cursor, _SAMPLED, store, SAMPLE)]
    records = {record.id: record for _, record in sampled}
    ages = {record.id: age for age, record in sampled}  # those that are read meanwhile join them
    words = new_words(cursor, store, Shift({}, records, ages))
    rows = [{"id": kept(record_id), "words": words[record_id]} for record_id in records]
    return ask(cursor, _COMPARED, listed(rows), store).fetchall()[0][0]
