"""Rewriting what records and links hold and held, in the reference engine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from recollect.core.ports import Redaction
from recollect.core.records import AMENDABLE, Edit, Link, Record, Ref
from recollect.engines.memory.contents import Contents


@dataclass(frozen=True, slots=True)
class Rewritten:
    """All records, links and changes as they are to stand, and which of them differ."""

    contents: Contents
    in_record: set[Ref]
    in_link: set[Ref]
    in_log: set[Ref]


def rewrite(contents: Contents, refs: Sequence[Ref], clean: Redaction) -> Rewritten:
    """Raises Conflict where two records or links would come to stand for the same."""
    wanted = set(refs)
    records, links = contents.records, contents.links
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
        Contents(
            {**records, **new_records},
            {**links, **new_links},
            [replace(c, edits=tuple(map(edit, c.edits))) for c in contents.changes],
        ),
        {new.ref for i, new in new_records.items() if new is not records[i]},
        {new.ref for i, new in new_links.items() if new is not links[i]},
        in_log,
    )
    result.contents.check_unique()
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
