"""What an account may write, for who does later what it wrote before."""

from collections.abc import Awaitable, Callable

from everkept.core.accounts import Account
from everkept.core.ports import Library
from everkept.values import Value


class Rights(Value):
    """Of one account, as a library has them. Projects are named by their ids."""

    account: Account
    writes: frozenset[str] = frozenset()
    owns: frozenset[str] = frozenset()


#: What an account of that name may do by now; None: there is none.
RightsOf = Callable[[Library, str], Awaitable[Rights | None]]


async def of_nobody(_library: Library, _user: str) -> Rights | None:
    """For who knows of no accounts."""
    return None
