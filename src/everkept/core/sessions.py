"""Who is calling: an account, its session, and the one call that is under way."""

import json
import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable
from uuid import uuid4

from everkept.core.text import clip_text
from everkept.errors import InvalidInput
from everkept.values import Value, field

NOTE_PREFIX = "account."  # how the keys of notes begin that say who has an account, and sees what
# of those, the ones about who there is; the name of the account follows
USER_NOTE_PREFIX = NOTE_PREFIX + "user."
MAX_NAME_CHARACTERS = 40
NAME_PATTERN = rf"[a-z0-9._-]{{1,{MAX_NAME_CHARACTERS}}}"  # as a pattern
OWNER = "owner"  # how lists and logs call who has everything; no account is called so


class Account(Value):
    """Somebody who has a token of their own. A name may become another's; an `id` never does."""

    name: str
    is_peer: bool = False  # another server, which asks and never writes
    id: str = ""


_acting: ContextVar[Account | None] = ContextVar("acting", default=None)


def get_acting_account() -> Account | None:
    """Whose call this is; None where it is the owner's, or nobody's: work of our own."""
    return _acting.get()


@contextmanager
def act_as(account: Account | None) -> Generator[None, None, None]:
    """Whatever is done within, in tasks that begin there too, is done for this account."""
    token = _acting.set(account)
    try:
        yield
    finally:
        _acting.reset(token)


def format_signature(client: str) -> str:
    """How the log names whoever is acting: an account with the program that it uses."""
    account = get_acting_account()
    if account is None:
        return client
    return f"{account.name} ({client})" if client else account.name


def find_signer(client: str) -> str | None:
    """Whose name stands before the program's, where the log has it from an account."""
    found = re.fullmatch(rf"({NAME_PATTERN}) \(.*\)", client, re.DOTALL)
    return found[1] if found else None


def format_session_prefix(user: str) -> str:
    """How the names of a user's sessions begin where those of all are kept together."""
    return f"account:{user}/"


def is_account_session(session: str | None) -> bool:
    """Whether a session is an account's, by the name under which it is kept."""
    return re.match(format_session_prefix(NAME_PATTERN), session or "") is not None


def parse_account_id(note: str | None) -> str | None:
    """The id of the account that a note is about; None where that is none, or is being removed."""
    try:
        found: Any = json.loads(note) if note else None
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    fields = cast(dict[str, Any], found)
    return None if fields.get("leaving") else str(fields.get("id", ""))


@runtime_checkable
class OwnedStore(Protocol):
    """A store that others see too."""

    def check_own(self) -> None:
        """Raises Refused where it is not the acting account's own."""
        ...


def check_own(store: object) -> None:
    """For whoever takes something out of a store, away from all who see it."""
    if isinstance(store, OwnedStore):
        store.check_own()


def validate_account_name(name: str) -> str:
    """The name as it is kept, in small letters, or what is wrong with it."""
    folded = name.strip().lower()
    if folded == OWNER:
        raise InvalidInput(
            f'"{OWNER}" is who runs the server: no account is called so.',
            hint="Choose another name; a token of the owner's is made without one.",
            argument="user",
            value=OWNER,
        )
    if not re.fullmatch(NAME_PATTERN, folded):
        shown = clip_text(name, MAX_NAME_CHARACTERS).encode("utf-8", "replace").decode()
        raise InvalidInput(
            f'"{shown}" is no name of a user.',
            hint=f"1 to {MAX_NAME_CHARACTERS} of a-z, 0-9, '.', '_' and '-' do well.",
            argument="user",
            value=shown,
        )
    return folded


PrivateStoreKind = Literal["user", "history"]

_PRIVATE_NAME = re.compile(rf"@(user|history) \(({NAME_PATTERN})\)")


class PrivateStore(NamedTuple):
    """Which home of which account a project is."""

    home: PrivateStoreKind
    user: str


def format_private_name(home: PrivateStoreKind, user: str) -> str:
    return f"@{home} ({user})"


def parse_private_name(project_name: str) -> PrivateStore | None:
    """None for a project that is one."""
    found = _PRIVATE_NAME.fullmatch(project_name)
    return PrivateStore("user" if found[1] == "user" else "history", found[2]) if found else None


def is_private_name(project_name: str) -> bool:
    """Whether no tool may list or open a project of this name, and no command tell of it."""
    return parse_private_name(project_name) is not None


def is_orphaned_private(project_name: str, before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether it was the home of an account that is no more, by the notes of then and of now.

    Whoever is called so by now, or next, must not find it.
    """
    found = parse_private_name(project_name)
    if found is None:
        return False
    known = parse_account_id(now.get(USER_NOTE_PREFIX + found.user))
    return known is None or known != parse_account_id(before.get(USER_NOTE_PREFIX + found.user))


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
    # ETag of each bank file that it has read, and the content if it is short
    known_files: dict[str, tuple[str, bytes | None]] = field(
        default_factory=dict[str, tuple[str, bytes | None]], repr=False, compare=False
    )
    started_at: int | None = None  # when its client introduced itself


def act_in(session: Session) -> AbstractContextManager[None]:
    """What is done within is done for whose session it is; one of nobody's widens nothing."""
    return act_as(session.account or get_acting_account())


def choose_conversation(session: Session, given: str | None, default: str | None) -> str | None:
    """The conversation that a call belongs to: the one it names, else that of the process, else
    the connection's own; None on a connection that keeps none."""
    if given is not None:
        return given.strip()
    if default is not None:
        return default
    converses = session.stateful and session.is_conversation
    return f"session:{session.id}" if converses else None


async def ignore_progress(_done: float, _total: float | None, _message: str | None) -> None:
    """Progress that nobody asked for."""


class ToolCall(Value):
    """One call of one tool; handed to methods that have a parameter of this type."""

    session: Session
    tool: str
    report: Report = ignore_progress
    alias: str | None = None  # the name that it was called by, where that is another

    @property
    def wants_progress(self) -> bool:
        """Whether anybody listens: asking another server for progress costs messages."""
        return self.report is not ignore_progress
