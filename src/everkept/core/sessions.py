"""The caller: an account, its session, and the current call."""

import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable
from uuid import uuid4

from everkept.core.text import clip_text, parse_json_object
from everkept.errors import InvalidInput
from everkept.values import Value, field

NOTE_PREFIX = "account."  # prefix of notes about accounts and their access
# Prefix of the notes about existing accounts, followed by the name of the account.
USER_NOTE_PREFIX = NOTE_PREFIX + "user."
# A user and a project follow. A user name has no "/", so no key is a prefix of the key of another user.
GRANT_NOTE_PREFIX = NOTE_PREFIX + "grant."
ENDED_ACCESS = "none"  # access of a revoked grant, which keeps its project's name reserved
MAX_NAME_CHARACTERS = 40
NAME_PATTERN = rf"[a-z0-9._-]{{1,{MAX_NAME_CHARACTERS}}}"  # as a pattern
OWNER = "owner"  # name of the owner in lists and logs, and never of an account


class Account(Value):
    """Person with tokens. Another person may get the name later, but never the `id`."""

    name: str
    is_peer: bool = False  # another server, which asks and never writes
    id: str = ""


_acting: ContextVar[Account | None] = ContextVar("acting", default=None)


def get_acting_account() -> Account | None:
    """Return the account that makes the call, or None for the owner and for background work."""
    return _acting.get()


@contextmanager
def act_as(account: Account | None) -> Generator[None, None, None]:
    """Run the block, and tasks that start in it, for this account."""
    token = _acting.set(account)
    try:
        yield
    finally:
        _acting.reset(token)


def format_signature(client: str) -> str:
    """Return the name of the caller for the log: an account with its program."""
    account = get_acting_account()
    if account is None:
        return client
    return f"{account.name} ({client})" if client else account.name


def find_signer(client: str) -> str | None:
    """Return the account in a log entry, which precedes the program."""
    found = re.fullmatch(rf"({NAME_PATTERN}) \(.*\)", client, re.DOTALL)
    return found[1] if found else None


def format_session_prefix(user: str) -> str:
    """Return the prefix of an account's sessions in a store for all accounts."""
    return f"account:{user}/"


def is_account_session(session: str | None) -> bool:
    """Return whether a stored session name is an account's."""
    return re.match(format_session_prefix(NAME_PATTERN), session or "") is not None


def parse_account_id(note: str | None) -> str | None:
    """Return the account id in a note, or None if there is none or the account is being removed."""
    fields = parse_json_object(note)
    return None if fields is None or fields.get("leaving") else str(fields.get("id", ""))


@runtime_checkable
class OwnedStore(Protocol):
    """Store that others see too."""

    def check_own(self) -> None:
        """Raise Refused if the record does not belong to the acting account."""
        ...


def check_own(store: object) -> None:
    """Check before data is moved out of a store that others see."""
    if isinstance(store, OwnedStore):
        store.check_own()


def validate_account_name(name: str) -> str:
    """Return the name in lower case, or raise InvalidInput."""
    folded = name.strip().lower()
    if folded == OWNER:
        raise InvalidInput(
            f'"{OWNER}" is reserved for the person who runs the server.',
            hint="Choose another name, or omit the name to create a token for the owner.",
            argument="user",
            value=OWNER,
        )
    if not re.fullmatch(NAME_PATTERN, folded):
        shown = clip_text(name, MAX_NAME_CHARACTERS).encode("utf-8", "replace").decode()
        raise InvalidInput(
            f'"{shown}" is not a valid user name.',
            hint=f"Use 1 to {MAX_NAME_CHARACTERS} characters of a-z, 0-9, '.', '_' and '-'.",
            argument="user",
            value=shown,
        )
    return folded


PrivateStoreKind = Literal["user", "history"]

_PRIVATE_NAME = re.compile(rf"@(user|history) \(({NAME_PATTERN})\)")


class PrivateStore(NamedTuple):
    """Private store of an account: which one, and whose."""

    home: PrivateStoreKind
    user: str


def format_private_name(home: PrivateStoreKind, user: str) -> str:
    return f"@{home} ({user})"


def parse_private_name(project_name: str) -> PrivateStore | None:
    """Return None if the project is not a private store."""
    found = _PRIVATE_NAME.fullmatch(project_name)
    return PrivateStore("user" if found[1] == "user" else "history", found[2]) if found else None


def is_private_name(project_name: str) -> bool:
    """Return whether tools and commands must hide a project of this name."""
    return parse_private_name(project_name) is not None


def is_orphaned_private(project_name: str, before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Return whether it belonged to a removed account, by the notes of then and now.

    A later account with the same name must not find it.
    """
    found = parse_private_name(project_name)
    if found is None:
        return False
    known = parse_account_id(now.get(USER_NOTE_PREFIX + found.user))
    return known is None or known != parse_account_id(before.get(USER_NOTE_PREFIX + found.user))


Report = Callable[[float, float | None, str | None], Awaitable[None]]


class Session(Value, frozen=False):
    """Data of one client, never shared between two.

    A session that is not `stateful` lasts for one request and forgets its state afterwards, so tools must say so.
    Without a conversation, as on the command line, memories belong to no session.
    """

    client: str = ""
    project: str | None = None
    stateful: bool = True
    is_conversation: bool = True
    bank: str | None = None  # address of the memory bank that it selected
    mode: str | None = None  # mode of the bank that it selected
    updates_bank: bool = False  # between "Update Memory Bank" and its end
    id: str = field(default_factory=lambda: uuid4().hex)
    account: Account | None = None  # None: the owner
    # ETag of each bank file that it has read, and the content if it is short
    known_files: dict[str, tuple[str, bytes | None]] = field(
        default_factory=dict[str, tuple[str, bytes | None]], repr=False, compare=False
    )
    started_at: int | None = None  # time of the handshake
    roots: tuple[Path, ...] = ()  # workspace folders of the client, in its order


def act_in(session: Session) -> AbstractContextManager[None]:
    """Run the block for the account of the session. A session without one adds no rights."""
    return act_as(session.account or get_acting_account())


_used: ContextVar[list[str] | None] = ContextVar("used", default=None)


@contextmanager
def track_used_projects(names: list[str]) -> Generator[None, None, None]:
    """Add to `names` each project that the block uses without naming it, in order. Blocks can be nested."""
    outer, token = _used.get(), _used.set(names)
    try:
        yield
    finally:
        _used.reset(token)
        if outer is not None:
            outer += [name for name in names if name not in outer]


def note_used_project(name: str) -> None:
    names = _used.get()
    if names is not None and name not in names:
        names.append(name)


def choose_conversation(session: Session, given: str | None, default: str | None) -> str | None:
    """Return the conversation of a call: the one it names, otherwise that of the process or of the connection. Return
    None if the connection has none.

    That of an account begins with its name, so that no account reaches a conversation of another or of the owner.
    """
    converses = session.stateful and session.is_conversation
    chosen = default if given is None else given.strip()
    chosen = f"session:{session.id}" if chosen is None and converses else chosen
    account = get_acting_account()
    if account is None or not chosen:
        return chosen
    return f"{account.name} {chosen.removeprefix(f'{account.name} ')}"


async def ignore_progress(_done: float, _total: float | None, _message: str | None) -> None:
    """Ignore progress that the client did not request."""


class ToolCall(Value):
    """One call of one tool. Methods with a parameter of this type receive it."""

    session: Session
    tool: str
    report: Report = ignore_progress
    alias: str | None = None  # the called name, if it is an alias
    root: Path | None = None  # the root of the client that its arguments name

    @property
    def folder(self) -> Path | None:
        """Return the workspace folder of the client for this call, if the client has any."""
        return self.root or next(iter(self.session.roots), None)

    @property
    def wants_progress(self) -> bool:
        """Return whether the client wants progress. Requesting progress from another server costs messages."""
        return self.report is not ignore_progress
