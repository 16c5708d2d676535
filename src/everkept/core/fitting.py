"""Which records a question means, and who is heard by whom, for whoever has them at hand."""

from everkept.core.records import SESSION_SCOPE, Record, Where


def fits(record: Record, where: Where) -> bool:
    touched = max(record.updated_at, record.deleted_at or 0)
    return (
        (where.deleted is None or where.deleted == (record.deleted_at is not None))
        and (not where.kinds or record.kind in where.kinds)
        and (where.ids is None or record.id in where.ids)
        and (where.name_keys is None or record.name_key in where.name_keys)
        and (where.parents is None or record.parent in where.parents)
        and (not where.types or record.type in where.types)
        and (not where.scopes or record.scope in where.scopes)
        and (where.sessions is None or record.session in where.sessions)
        and (where.places is None or (record.session, record.position) in where.places)
        and (
            where.visible_to is None
            or record.scope != SESSION_SCOPE
            or record.session == where.visible_to
        )
        and (not where.tags or not set(where.tags).isdisjoint(record.tags))
        and (not where.pinned or bool(record.facets.get("pinned")))
        and (not where.automatic or bool(record.facets.get("automatic")))
        and (where.min_importance is None or (record.importance or 0) >= where.min_importance)
        and (where.after is None or record.at >= where.after)
        and (where.before is None or record.at <= where.before)
        and (where.created_before is None or record.created_at <= where.created_before)
        and (where.touched_after is None or touched > where.touched_after)
    )


def hears(record: Record, other: Record) -> bool:
    """Whether the other's text is part of what the record is found by.

    It stands just before or after it in a session, and whoever sees the record may see it too.
    """
    return (
        record.session is not None
        and record.position is not None
        and other.position in (record.position - 1, record.position + 1)
        and (other.kind, other.session) == (record.kind, record.session)
        and other.deleted_at is None
        and (other.scope != SESSION_SCOPE or record.scope == SESSION_SCOPE)
    )
