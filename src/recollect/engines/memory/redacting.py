"""Rewriting what records hold and held, in the reference engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from recollect.core.ports import Redaction
from recollect.core.records import AMENDABLE, Change, Edit, Record
from recollect.errors import Conflict


@dataclass(frozen=True, slots=True)
class Rewritten:
    """All records and changes as they are to stand, and the ids of those that differ."""

    records: dict[str, Record]
    changes: list[Change]
    in_record: set[str]
    in_log: set[str]


def rewrite(
    records: Mapping[str, Record], changes: Sequence[Change], ids: Sequence[str], clean: Redaction
) -> Rewritten:
    """Raises Conflict where two records would come to stand for the same."""
    new = {i: _record(records[i], clean) for i in ids if i in records}
    in_record = {record_id for record_id, record in new.items() if record is not records[record_id]}
    in_log: set[str] = set()

    def edit(old: Edit) -> Edit:
        if old.subject != "record" or old.id not in new or old.before is None:
            return old
        before = clean(old.id, old.before)
        if before == old.before:
            return old
        in_log.add(old.id)
        return replace(old, before=before)

    rewritten = [replace(change, edits=tuple(map(edit, change.edits))) for change in changes]
    result = Rewritten({**records, **new}, rewritten, in_record, in_log)
    _check_names(result)
    return result


def _record(record: Record, clean: Redaction) -> Record:
    values = {name: getattr(record, name) for name in sorted(AMENDABLE)}
    cleaned = clean(record.id, values)
    altered = {name: cleaned[name] for name in values if cleaned[name] != values[name]}
    return replace(record, **altered, version=record.version + 1) if altered else record


def _check_names(result: Rewritten) -> None:
    live = [r for r in result.records.values() if r.deleted_at is None and r.name_key is not None]
    if len({(r.kind, r.name_key, r.variant, r.parent) for r in live}) < len(live):
        raise Conflict("Another record has these words already.")
