"""Rows to values and back: the one place that knows the columns' order."""

import json
from collections.abc import Mapping
from typing import Any

from recollect.core.records import Link, Record

RECORD_COLUMNS = (
    "r.id, r.kind, r.type, r.name, r.name_key, r.variant, r.text, r.facets, "
    "r.created_at, r.updated_at, r.deleted_at, r.version, "
    "(SELECT p.id FROM records p WHERE p.key = r.parent)"
)
LINK_COLUMNS = (
    "l.id, (SELECT s.id FROM records s WHERE s.key = l.source), l.verb, "
    "(SELECT t.id FROM records t WHERE t.key = l.target), l.facets, l.created_at, l.deleted_at"
)


def record_from(row: tuple[Any, ...]) -> Record:
    (
        record_id,
        kind,
        record_type,
        name,
        name_key,
        variant,
        text,
        facets,
        created_at,
        updated_at,
        deleted_at,
        version,
        parent,
    ) = row
    return Record(
        id=record_id,
        kind=kind,
        type=record_type,
        name=name,
        name_key=name_key,
        variant=variant,
        parent=parent,
        text=text,
        facets=facets_from(facets),
        created_at=created_at,
        updated_at=updated_at,
        deleted_at=deleted_at,
        version=version,
    )


def link_from(row: tuple[Any, ...]) -> Link:
    link_id, source, verb, target, facets, created_at, deleted_at = row
    return Link(
        id=link_id,
        source=source,
        verb=verb,
        target=target,
        facets=facets_from(facets),
        created_at=created_at,
        deleted_at=deleted_at,
    )


def facets_from(stored: str | None) -> dict[str, Any]:
    return json.loads(stored) if stored else {}


def facets_to(facets: Mapping[str, Any]) -> str | None:
    return json.dumps(facets, ensure_ascii=False, sort_keys=True) if facets else None
