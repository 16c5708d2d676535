"""What an account may write by now, for what it wrote while the database was away."""

from recollect.app.accounts.grants import USER, grants_in, grants_key, number_in
from recollect.app.tokens import fields_of
from recollect.core.ports import Library
from recollect.core.rights import Rights


async def rights_of(library: Library, user: str) -> Rights | None:
    """None where there is no such account, or it never writes."""
    fields = fields_of(await library.note(USER + user))
    if fields is None or fields.get("peer"):
        return None
    grants = grants_in(await library.notes(grants_key(user)))
    return Rights(
        user,
        number_in(fields, "created_at"),
        writes=frozenset(grant.project_id for grant in grants if grant.writes),
        owns=frozenset(grant.project_id for grant in grants if grant.access == "own"),
    )
