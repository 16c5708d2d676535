"""Rewriting what records and links hold and held, in the reference engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from recollect.core.ports import Redaction
from recollect.core.records import AMENDABLE, Change, Edit, Link, Record, Ref
from recollect.errors import Conflict


@dataclass(frozen=True, slots=True)
class Rewritten:
    """All records, links and changes as they are to stand, and which of them differ."""

    records: dict[str, Record]
    links: dict[str, Link]
    changes: list[Change]
    in_record: set[Ref]
    in_link: set[Ref]
    in_log: set[Ref]


def rewrite(
    records: Mapping[str, Record],
    links: Mapping[str, Link],
    changes: Sequence[Change],
    refs: Sequence[Ref],
    clean: Redaction,
) -> Rewritten:
    """Raises Conflict where two records or links would come to stand for the same."""
    wanted = set(refs)
    new_records = {i: _record(r, clean) for i, r in records.items() if r.ref in wanted}
    new_links = {i: _link(x, clean) for i, x in links.items() if x.ref in wanted}
    in_log: set[Ref] = set()

    def edit(old: Edit) -> Edit:
        ref = Ref(old.subject, old.id or "")
        if ref not in wanted or old.before is None:
            return old
        before = clean(ref, old.before)
        if before == old.before:
            return old
        in_log.add(ref)
        return replace(old, before=before)

    result = Rewritten(
        {**records, **new_records},
        {**links, **new_links},
        [replace(change, edits=tuple(map(edit, change.edits))) for change in changes],
        {new.ref for i, new in new_records.items() if new is not records[i]},
        {new.ref for i, new in new_links.items() if new is not links[i]},
        in_log,
    )
    _check_unique(result)
    return result


def _record(record: Record, clean: Redaction) -> Record:
    values = {name: getattr(record, name) for name in sorted(AMENDABLE)}
    cleaned = clean(record.ref, values)
    altered = {name: cleaned[name] for name in values if cleaned[name] != values[name]}
    return replace(record, **altered, version=record.version + 1) if altered else record


def _link(link: Link, clean: Redaction) -> Link:
    values = {"verb": link.verb, "facets": link.facets}
    cleaned = clean(link.ref, values)
    altered = {name: cleaned[name] for name in values if cleaned[name] != values[name]}
    return replace(link, **altered) if altered else link


def _check_unique(result: Rewritten) -> None:
    live = [r for r in result.records.values() if r.deleted_at is None and r.name_key is not None]
    if len({(r.kind, r.name_key, r.variant, r.parent) for r in live}) < len(live):
        raise Conflict("Another record has these words already.")
    links = [x for x in result.links.values() if x.deleted_at is None]
    if len({(x.source, x.verb, x.target) for x in links}) < len(links):
        raise Conflict("Another link says the same already.")


def without_traces(records: dict[str, Record], edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """The edits of what can be made again, as the log keeps them; deleted records are emptied."""
    for edit in edits:
        if edit.operation == "delete" and edit.subject == "record" and edit.id is not None:
            record = records[edit.id]
            records[edit.id] = replace(
                record, text="", name=None, name_key=None, tags=(), facets={}
            )
    return tuple(replace(e, before={}) if e.operation == "update" else e for e in edits)
