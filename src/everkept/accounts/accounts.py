"""Users, their tokens, and what they are granted."""

import json
import secrets
from collections.abc import Awaitable
from typing import Final, TypeVar

from everkept.accounts.account_library import build_project_error, list_private_names
from everkept.accounts.grants import (
    GRANT_NOTES,
    TOKEN_NOTES,
    AccessLevel,
    Grant,
    build_grant_key,
    build_grants_prefix,
    build_token,
    choose_shown_name,
    encode_ended_grant,
    encode_grant,
    get_moment,
    get_token_kind,
    hash_secret,
    parse_grants,
    parse_note,
    revoke_token,
)
from everkept.core.answers import MAX_SEARCHES
from everkept.core.library import track_replica_use
from everkept.core.ports import Library, Token
from everkept.core.projects import Project
from everkept.core.sessions import (
    USER_NOTE_PREFIX,
    Account,
    format_session_prefix,
    is_private_name,
    parse_account_id,
    validate_account_name,
)
from everkept.core.times import Clock, format_iso
from everkept.errors import Conflict, NotFound, Refused, StoreUnreachable
from everkept.values import Value

T = TypeVar("T")

# How long the copy of a database that is away is believed about accounts. Who is let out where
# all servers see it is let out here too by then.
TRUST_HOURS = 24
TRUST_MICROSECONDS = TRUST_HOURS * 3600 * 1_000_000
# microseconds by which the clock may have been set back since
CLOCK_SKEW_MICROSECONDS = 60 * 1_000_000


class UnknownAccount:
    """What the account of a token is that nobody has."""


UNKNOWN_ACCOUNT: Final = UnknownAccount()


class User(Value):
    """Somebody who has an account."""

    name: str
    is_peer: bool
    created_at: int
    is_leaving: bool = False  # a removal was begun, and is to be finished


class Accounts:
    """Who may come in, and what each of them sees. It takes effect at the next call, in running
    servers too: all of it is in notes of the library."""

    def __init__(self, library: Library, clock: Clock) -> None:
        self._library = library
        self._clock = clock

    async def authenticate(self, secret: str) -> Account | UnknownAccount | None:
        """Who comes in with this secret; None: the owner.

        One of an account's form is never the owner's, whatever became of its note. Raises
        StoreAway where all that is known of an account is too old to let it in.
        """
        with track_replica_use() as asked:
            account = await self.find_account(hash_secret(secret))
        if asked.from_replica and isinstance(account, Account):
            self._expect_recent()
        return UNKNOWN_ACCOUNT if account is None and get_token_kind(secret) != "owner" else account

    async def find_account(self, secret_hash: str) -> Account | UnknownAccount | None:
        """Whose token it is; None: the owner's."""
        key = TOKEN_NOTES + secret_hash
        # The note is looked at before the token and, where there is none, behind it too: whoever
        # makes a token writes the note first, and whoever ends one removes it last.
        note = await self._library.get_note(key)
        if not await self._library.has_token(secret_hash):
            return UNKNOWN_ACCOUNT
        note = note or await self._library.get_note(key)
        return None if note is None else await self._read_account(note)

    async def create_token(self, user: str, label: str, *, peer: bool = False) -> tuple[Token, str]:
        """A new token of that user and its secret, which cannot be had again.

        The first token makes the user.
        """
        token, secret, secret_hash = build_token(label, self._clock, "peer" if peer else "account")
        account = await self._ensure_user(user, is_peer=peer)
        # First, so that nobody meets the token without it.
        note = {"user": account.name, "account": account.id, "token": token.id, "peer": peer}
        await self._library.set_note(TOKEN_NOTES + secret_hash, json.dumps(note))
        await self._library.add_token(token, secret_hash)
        return token, secret

    async def map_token_users(self) -> dict[str, User]:
        """By the ids of tokens; those that are not in it are the owner's."""
        users = {user.name: user for user in await self.list_users()}
        found: dict[str, User] = {}
        for note in (await self._library.list_notes(TOKEN_NOTES)).values():
            fields = parse_note(note) or {}
            name, token_id = fields.get("user"), fields.get("token")
            if isinstance(name, str) and isinstance(token_id, str):
                gone = User(name, is_peer=bool(fields.get("peer")), created_at=0)
                found[token_id] = users.get(name) or gone
        return found

    async def list_users(self) -> list[User]:
        found: list[User] = []
        for key, note in (await self._library.list_notes(USER_NOTE_PREFIX)).items():
            fields = parse_note(note) or {}
            user = User(
                key.removeprefix(USER_NOTE_PREFIX),
                is_peer=bool(fields.get("peer")),
                created_at=get_moment(fields, "created_at"),
                is_leaving=bool(fields.get("leaving")),
            )
            found.append(user)
        return sorted(found, key=lambda user: user.name)

    async def get_user(self, name: str) -> User:
        wanted = validate_account_name(name)
        return await self.look_up(self._get_user(wanted))

    async def _get_user(self, wanted: str) -> User:
        found = next((user for user in await self.list_users() if user.name == wanted), None)
        if found is None:
            hint = (
                f"`everkept account list` shows who has one; `everkept token --user {wanted}` makes it, with a token."
            )
            raise NotFound("user", wanted, hint=hint)
        return found

    async def grant(self, user: str, project: Project, access: AccessLevel) -> Grant:
        """Lets a user see a project; who sees it already, in this way from now on.

        The name that the user knows it by is settled here, and stays.
        """
        if is_private_name(project.name):  # it is a user's alone
            raise build_project_error(project.name)
        owner = await self.get_user(user)
        if owner.is_leaving:
            raise _build_leaving_error(owner.name)
        if owner.is_peer and access != "read":
            raise Refused(
                f"{owner.name} is another server, which reads and never writes.",
                hint="Grant it `read`.",
                user=owner.name,
            )
        before = await self._find_grant(owner.name, project)
        if before is not None and before.access == "own":
            raise Conflict(f'"{project.name}" is {owner.name}\'s own project.', user=owner.name)
        notes = await self._library.list_notes(build_grants_prefix(owner.name))
        name = choose_shown_name(project.name, project.id, notes)
        granted = Grant(owner.name, project.id, access, name, before.at if before else self._clock())
        await self._library.set_note(build_grant_key(owner.name, project.id), encode_grant(granted))
        return granted

    async def revoke(self, user: str, project: Project) -> str:
        """Gives the user's name as it is kept; NotFound where nothing is granted."""
        name = (await self.get_user(user)).name
        grant = await self.look_up(self._get_grant(name, project))
        if grant.access == "own":
            raise Refused(
                f'"{project.name}" is {name}\'s own project, which is not taken away.',
                hint="`everkept delete-project` deletes it, `everkept account remove` makes "
                "the projects of an account yours.",
                user=name,
            )
        await self._library.set_note(build_grant_key(name, project.id), encode_ended_grant(grant))
        return name

    async def list_grants(self) -> list[Grant]:
        """Those of all users, the oldest first."""
        return parse_grants(await self._library.list_notes(GRANT_NOTES))

    async def list_user_grants(self, user: str) -> list[Grant]:
        """The oldest first."""
        name = validate_account_name(user)
        return parse_grants(await self._library.list_notes(build_grants_prefix(name)))

    async def remove_user(self, name: str) -> None:
        """With tokens, grants and what is the user's alone; projects stay, the owner's then."""
        user = await self.get_user(name)
        # First: what comes from now on, from a server that was cut off too, is nobody's.
        fields = parse_note(await self._library.get_note(USER_NOTE_PREFIX + user.name)) or {}
        await self._library.set_note(USER_NOTE_PREFIX + user.name, json.dumps({**fields, "leaving": True}))
        for token_id, owner in (await self.map_token_users()).items():
            if owner.name == user.name:
                await revoke_token(self._library, token_id)
        await self._clear(user.name)
        await self._forget_searches(user.name)
        await self._library.set_note(USER_NOTE_PREFIX + user.name, None)  # last: who was cut short tries again

    async def look_up(self, asked: Awaitable[T]) -> T:
        """What somebody names who changes what accounts see. Raises StoreAway where the database
        is away and what was last seen of it lacks that."""
        with track_replica_use() as answer:
            try:
                return await asked
            except NotFound:
                if not answer.from_replica:
                    raise
        raise self._build_unreachable_error()

    def _build_unreachable_error(self) -> StoreUnreachable:
        return StoreUnreachable(
            "Accounts and what they see cannot be changed while the database is away. Nothing was "
            f"done. {self._library.condition.reason}".rstrip(),
            hint="Try again when it is back.",
        )

    async def _read_account(self, note: str) -> Account | UnknownAccount:
        """Whose token a note tells of. One that cannot be read lets nobody in, nor does one of
        somebody who was removed, whoever has that name by now."""
        fields = parse_note(note) or {}
        name = fields.get("user")
        if not isinstance(name, str):
            return UNKNOWN_ACCOUNT
        known = parse_account_id(await self._library.get_note(USER_NOTE_PREFIX + name))
        if known is None or known != fields.get("account", ""):
            return UNKNOWN_ACCOUNT
        return Account(name, bool(fields.get("peer")), known)

    def _expect_recent(self) -> None:
        at = self._library.condition.accounts_at
        if at is not None and -CLOCK_SKEW_MICROSECONDS <= self._clock() - at <= TRUST_MICROSECONDS:
            return
        known = f"since {format_iso(at)}" if at else "yet"
        raise StoreUnreachable(
            "This token cannot be checked: the database is away, and this server has not heard "
            f"from it {known}. It lets an account in for {TRUST_HOURS} hours from then.",
            hint="Try again when the database is back.",
        )

    async def _forget_searches(self, user: str) -> None:
        kept = await self._library.list_searches(limit=MAX_SEARCHES)
        others = [s for s in kept if not (s.session or "").startswith(format_session_prefix(user))]
        if len(others) < len(kept):
            await self._library.forget_searches()
            await self._library.add_searches(list(reversed(others)))

    async def _ensure_user(self, name: str, *, is_peer: bool) -> Account:
        name = validate_account_name(name)
        note = await self._library.get_note(USER_NOTE_PREFIX + name)
        if note is None:
            return await self._create_user(name, is_peer=is_peer)
        fields = parse_note(note) or {}
        if fields.get("leaving"):
            raise _build_leaving_error(name)
        if bool(fields.get("peer")) != is_peer:
            kind = "a person's account" if is_peer else "another server's account"
            raise Conflict(f"{name} is {kind} already.", hint="Choose another name.", user=name)
        return Account(name, is_peer, parse_account_id(note) or "")

    async def _create_user(self, name: str, *, is_peer: bool) -> Account:
        """Calls that were under way when another of this name was removed may have left
        something: that goes first."""
        with track_replica_use() as answer:
            await self._clear(name)
        if answer.from_replica:
            raise self._build_unreachable_error()
        account = Account(name, is_peer, secrets.token_hex(8))
        made = {"id": account.id, "created_at": self._clock(), "peer": is_peer}
        await self._library.set_note(USER_NOTE_PREFIX + name, json.dumps(made))
        return account

    async def _clear(self, name: str) -> None:
        """Deletes what is for the account of this name alone, and what is granted to it."""
        homes = list_private_names(name)
        for project in await self._library.list_projects():
            if project.name in homes:
                await self._library.delete(project.name)
        for key in await self._library.list_notes(build_grants_prefix(name)):
            await self._library.set_note(key, None)

    async def _get_grant(self, user: str, project: Project) -> Grant:
        grant = await self._find_grant(user, project)
        if grant is None:
            raise NotFound(
                "grant",
                project.name,
                message=f'"{project.name}" is not granted to {user}.',
                hint="`everkept account list` shows what is.",
            )
        return grant

    async def _find_grant(self, user: str, project: Project) -> Grant | None:
        of_user = await self.list_user_grants(user)
        return next((grant for grant in of_user if grant.project_id == project.id), None)


def _build_leaving_error(name: str) -> Conflict:
    return Conflict(
        f"{name} is being removed.",
        hint=f"`everkept account remove {name}` finishes it, if that was cut short.",
        user=name,
    )
