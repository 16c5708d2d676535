"""What an account may write by now, for what it wrote while the database was away."""

from everkept.app.accounts.grants import grants_in, grants_key
from everkept.app.tokens import fields_of
from everkept.core.accounts import USERS, Account, account_id
from everkept.core.ports import Library, Rights


async def rights_of(library: Library, user: str) -> Rights | None:
    """None where there is no such account, it is being removed, or it never writes."""
    note = await library.note(USERS + user)
    known = account_id(note)
    if known is None or (fields_of(note) or {}).get("peer"):
        return None
    grants = grants_in(await library.notes(grants_key(user)))
    return Rights(
        Account(user, id=known),
        writes=frozenset(grant.project_id for grant in grants if grant.writes),
        owns=frozenset(grant.project_id for grant in grants if grant.access == "own"),
    )
