"""Rewriting what records and links hold and held, in the reference engine."""

from collections.abc import Sequence

from everkept.core.ports import Redaction
from everkept.core.records import Edit, Ref
from everkept.engines.memory.contents import Contents
from everkept.engines.redacting import (
    redacted_edit,
    redacted_link,
    redacted_record,
    told_of,
)
from everkept.values import Value, replace


class Rewritten(Value):
    """All records, links and changes as they are to stand, and which of them differ."""

    contents: Contents
    in_record: set[Ref]
    in_link: set[Ref]
    in_log: set[Ref]


def rewrite(contents: Contents, refs: Sequence[Ref], clean: Redaction) -> Rewritten:
    """Raises Conflict where two records or links would come to stand for the same."""
    wanted = set(refs)
    records, links = contents.records, contents.links
    new_records = {i: redacted_record(r, clean) for i, r in records.items() if r.ref in wanted}
    new_links = {i: redacted_link(x, clean) for i, x in links.items() if x.ref in wanted}
    in_log: set[Ref] = set()

    def edit(old: Edit) -> Edit:
        new = redacted_edit(old, wanted, clean)
        if new is not old:
            in_log.add(told_of(old))
        return new

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
