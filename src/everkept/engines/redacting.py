"""Things without what is not to stand in them: each gives itself where nothing of it differs."""

from collections.abc import Collection

from everkept.core.ports import Redaction
from everkept.core.records import AMENDABLE, Edit, Link, Record, Ref
from everkept.values import replace


def redacted_record(record: Record, clean: Redaction) -> Record:
    values = {name: getattr(record, name) for name in sorted(AMENDABLE)}
    cleaned = clean(record.ref, values)
    altered = {name: cleaned[name] for name in values if cleaned[name] != values[name]}
    return replace(record, **altered, version=record.version + 1) if altered else record


def redacted_link(link: Link, clean: Redaction) -> Link:
    values = {"verb": link.verb, "facets": link.facets}
    cleaned = clean(link.ref, values)
    altered = {name: cleaned[name] for name in values if cleaned[name] != values[name]}
    return replace(link, **altered) if altered else link


def redacted_edit(edit: Edit, wanted: Collection[Ref], clean: Redaction) -> Edit:
    """The old values that the log tells of one of these things."""
    ref = told_of(edit)
    if ref not in wanted or edit.before is None:
        return edit
    before = clean(ref, edit.before)
    return edit if before == edit.before else replace(edit, before=before)


def told_of(edit: Edit) -> Ref:
    return Ref(edit.subject, edit.id or "")
