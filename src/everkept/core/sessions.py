"""Who is calling: a client's session, and the one call that is under way."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from uuid import uuid4

from everkept.core.accounts import Account, acting, acting_as
from everkept.values import Value, field

Report = Callable[[float, float | None, str | None], Awaitable[None]]


class Session(Value, frozen=False):
    """What the server keeps for one client; never shared between two.

    A session that is not `stateful` lives for a single request: what it is told to remember is
    forgotten with it, so tools must say so. Where it is no conversation, as on the command line,
    memories belong to no session.
    """

    client: str = ""
    project: str | None = None
    stateful: bool = True
    is_conversation: bool = True
    bank: str | None = None  # address of the memory bank it chose
    mode: str | None = None  # of working with it, once one was chosen
    updates_bank: bool = False  # between "Update Memory Bank" and its end
    id: str = field(default_factory=lambda: uuid4().hex)
    account: Account | None = None  # whose it is; None: the owner's
    started_at: int | None = None  # when its client introduced itself


def acting_in(session: Session) -> AbstractContextManager[None]:
    """What is done within is done for whose session it is; one of nobody's widens nothing."""
    return acting_as(session.account or acting())


def conversation_of(session: Session, given: str | None, default: str | None) -> str | None:
    """The conversation that a call belongs to: the one it names, else that of the process, else
    the connection's own; None on a connection that keeps none."""
    if given is not None:
        return given.strip()
    if default is not None:
        return default
    converses = session.stateful and session.is_conversation
    return f"session:{session.id}" if converses else None


async def unheard(_done: float, _total: float | None, _message: str | None) -> None:
    """Progress that nobody asked for."""


class Call(Value):
    """One call of one tool; handed to methods that have a parameter of this type."""

    session: Session
    tool: str
    report: Report = unheard
    alias: str | None = None  # the name that it was called by, where that is another

    @property
    def wants_progress(self) -> bool:
        """Whether anybody listens: asking another server for progress costs messages."""
        return self.report is not unheard
