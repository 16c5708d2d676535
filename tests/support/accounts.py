"""Accounts as tests name them, whose ids are random."""

from everkept.core.ports import Library
from everkept.core.sessions import Account, parse_account_id
from everkept.values import replace


def without_id(comer: object) -> object:
    """Whoever came in, to be compared with an account that a test has made up."""
    return replace(comer, id="") if isinstance(comer, Account) else comer


async def account_called(library: Library, name: str) -> Account:
    """The account of that name, as a server knows it that has this library."""
    return Account(name, id=parse_account_id(await library.get_note(f"account.user.{name}")) or "")
