"""Users, their tokens and their grants."""

import json
import secrets
from collections.abc import Awaitable
from typing import Final, TypeVar

from everkept.accounts.account_library import list_private_names
from everkept.accounts.grants import (
    GRANT_NOTE_PREFIX,
    SUBJECT_NOTES,
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
    revoke_token,
)
from everkept.core.answers import MAX_SEARCHES
from everkept.core.library import track_replica_use
from everkept.core.ports import Library, Token
from everkept.core.projects import Project, build_project_error
from everkept.core.sessions import (
    USER_NOTE_PREFIX,
    Account,
    format_session_prefix,
    is_private_name,
    parse_account_id,
    validate_account_name,
)
from everkept.core.text import parse_json_object
from everkept.core.times import Clock, format_iso
from everkept.errors import Conflict, NotFound, Refused, StoreUnreachable
from everkept.values import Value

T = TypeVar("T")

# How long account data in the local replica is trusted while the database is unreachable. An account that was revoked
# on another server loses access here after this time at the latest.
TRUST_HOURS = 24
TRUST_MICROSECONDS = TRUST_HOURS * 3600 * 1_000_000
# tolerated backward step of the clock
CLOCK_SKEW_MICROSECONDS = 60 * 1_000_000


class UnknownAccount:
    """Result for a token that belongs to no account. `reason` is for its user."""

    reason = "This bearer token is unknown."


UNKNOWN_ACCOUNT: Final = UnknownAccount()


class User(Value):
    """A person or peer server with an account."""

    name: str
    is_peer: bool
    created_at: int
    is_leaving: bool = False  # true after a removal that was started and not finished


class Accounts:
    """Users, tokens and grants, in library notes. Changes apply from the next call, also in running servers."""

    def __init__(self, library: Library, clock: Clock) -> None:
        self._library = library
        self._clock = clock

    async def authenticate(self, secret: str) -> Account | UnknownAccount | None:
        """Return the account of this secret, or None for the owner.

        A secret with the prefix of an account is never the owner's, even if its note is missing. Raise StoreUnreachable
        if the local replica's account data is too old to trust.
        """
        with track_replica_use() as asked:
            account = await self.find_account(hash_secret(secret))
        if asked.from_replica and isinstance(account, Account):
            self._expect_recent()
        return UNKNOWN_ACCOUNT if account is None and get_token_kind(secret) != "owner" else account

    async def read_note_account(self, key: str) -> Account | UnknownAccount | None:
        """Return the account that a note names, or None without the note. Raise as `authenticate`."""
        with track_replica_use() as asked:
            note = await self._library.get_note(key)
            account = None if note is None else await self._read_account(note)
        if asked.from_replica and isinstance(account, Account):
            self._expect_recent()
        return account

    async def find_account(self, secret_hash: str) -> Account | UnknownAccount | None:
        """Return the account of a token, or None for the owner."""
        key = TOKEN_NOTES + secret_hash
        # A token is created after its note and deleted before it. Reading the note before and, if missing, after the
        # token check avoids taking an account's token for the owner's.
        note = await self._library.get_note(key)
        if not await self._library.has_token(secret_hash):
            return UNKNOWN_ACCOUNT
        note = note or await self._library.get_note(key)
        return None if note is None else await self._read_account(note)

    async def create_token(self, user: str, label: str, *, peer: bool = False) -> tuple[Token, str]:
        """Create a token of that user, and the user if missing. Return it with its secret, which is not stored."""
        token, secret, secret_hash = build_token(label, self._clock, "peer" if peer else "account")
        account = await self.ensure_user(user, is_peer=peer)
        # The note comes first, so that no caller sees the token without it.
        note = {"user": account.name, "account": account.id, "token": token.id, "peer": peer}
        await self._library.set_note(TOKEN_NOTES + secret_hash, json.dumps(note))
        await self._library.add_token(token, secret_hash)
        return token, secret

    async def map_token_users(self) -> dict[str, User]:
        """Map token ids to their users. Tokens that are missing belong to the owner."""
        users = {user.name: user for user in await self.list_users()}
        found: dict[str, User] = {}
        for note in (await self._library.list_notes(TOKEN_NOTES)).values():
            fields = parse_json_object(note) or {}
            name, token_id = fields.get("user"), fields.get("token")
            if isinstance(name, str) and isinstance(token_id, str):
                gone = User(name, is_peer=bool(fields.get("peer")), created_at=0)
                found[token_id] = users.get(name) or gone
        return found

    async def list_users(self) -> list[User]:
        found: list[User] = []
        for key, note in (await self._library.list_notes(USER_NOTE_PREFIX)).items():
            fields = parse_json_object(note) or {}
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
            hint = f"List users with `everkept account list`, or create one with `everkept token --user {wanted}`."
            raise NotFound("user", wanted, hint=hint)
        return found

    async def grant(self, user: str, project: Project, access: AccessLevel) -> Grant:
        """Give a user access to a project, or change the access. The name that the user sees never changes."""
        if is_private_name(project.name):  # private to a user
            raise build_project_error(project.name)
        owner = await self.get_user(user)
        if owner.is_leaving:
            raise _build_leaving_error(owner.name)
        if owner.is_peer and access != "read":
            raise Refused(
                f'Account "{owner.name}" is a peer server, and peers cannot write.',
                hint="Grant it `read` instead.",
                user=owner.name,
            )
        before = await self._find_grant(owner.name, project)
        if before is not None and before.access == "own":
            raise Conflict(
                f'Project "{project.name}" belongs to {owner.name}.',
                hint="Grant it to another account; its owner already has full access.",
                user=owner.name,
            )
        notes = await self._library.list_notes(build_grants_prefix(owner.name))
        name = choose_shown_name(project.name, project.id, notes)
        granted = Grant(owner.name, project.id, access, name, before.at if before else self._clock())
        await self._library.set_note(build_grant_key(owner.name, project.id), encode_grant(granted))
        return granted

    async def revoke(self, user: str, project: Project) -> str:
        """Revoke a grant and return the normalized user name. Raise NotFound if nothing is granted."""
        name = (await self.get_user(user)).name
        grant = await self.look_up(self._get_grant(name, project))
        if grant.access == "own":
            raise Refused(
                f'Project "{project.name}" belongs to {name}, so this access cannot be revoked.',
                hint="Delete it with `everkept delete-project`, or run `everkept account remove` to make "
                "the account's projects yours.",
                user=name,
            )
        await self._library.set_note(build_grant_key(name, project.id), encode_ended_grant(grant))
        return name

    async def list_grants(self) -> list[Grant]:
        """Return the grants of all users, oldest first."""
        return parse_grants(await self._library.list_notes(GRANT_NOTE_PREFIX))

    async def list_user_grants(self, user: str) -> list[Grant]:
        """Return the grants of a user, oldest first."""
        name = validate_account_name(user)
        return parse_grants(await self._library.list_notes(build_grants_prefix(name)))

    async def remove_user(self, name: str) -> None:
        """Delete a user with tokens, grants and private data. The user's projects stay and become the owner's."""
        user = await self.get_user(name)
        # The mark comes first: later writes, even from a disconnected server, then belong to no account.
        fields = parse_json_object(await self._library.get_note(USER_NOTE_PREFIX + user.name)) or {}
        await self._library.set_note(USER_NOTE_PREFIX + user.name, json.dumps({**fields, "leaving": True}))
        for token_id, owner in (await self.map_token_users()).items():
            if owner.name == user.name:
                await revoke_token(self._library, token_id)
        await self._clear(user.name)
        await self._forget_searches(user.name)
        # Last, so that an interrupted removal can be repeated.
        await self._library.set_note(USER_NOTE_PREFIX + user.name, None)

    async def look_up(self, asked: Awaitable[T]) -> T:
        """Await a lookup. Raise StoreUnreachable if it fails and only the local replica answered."""
        with track_replica_use() as answer:
            try:
                return await asked
            except NotFound:
                if not answer.from_replica:
                    raise
        raise self._build_unreachable_error()

    def _build_unreachable_error(self) -> StoreUnreachable:
        return StoreUnreachable(
            "Accounts and grants cannot change while the database is unreachable. "
            f"Nothing was changed. {self._library.condition.reason}".rstrip(),
            hint="Try again when the database is reachable.",
        )

    async def _read_account(self, note: str) -> Account | UnknownAccount:
        """Return the account that a token's note names. Unreadable notes and notes of a removed account give no access,
        even if a new account has the same name.
        """
        fields = parse_json_object(note) or {}
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
            f"Cannot check this token: the database is unreachable and has not answered {known}. "
            f"Cached account data is valid for {TRUST_HOURS} hours.",
            hint="Try again when the database is reachable.",
        )

    async def _forget_searches(self, user: str) -> None:
        kept = await self._library.list_searches(limit=MAX_SEARCHES)
        others = [s for s in kept if not (s.session or "").startswith(format_session_prefix(user))]
        if len(others) < len(kept):
            await self._library.forget_searches()
            await self._library.add_searches(list(reversed(others)))

    async def ensure_user(self, name: str, *, is_peer: bool = False) -> Account:
        """Return the account with this name. Create it if it is missing."""
        name = validate_account_name(name)
        note = await self._library.get_note(USER_NOTE_PREFIX + name)
        if note is None:
            return await self._create_user(name, is_peer=is_peer)
        fields = parse_json_object(note) or {}
        if fields.get("leaving"):
            raise _build_leaving_error(name)
        if bool(fields.get("peer")) != is_peer:
            kind = "a person" if is_peer else "a peer server"
            raise Conflict(f'Account "{name}" already exists for {kind}.', hint="Choose another name.", user=name)
        return Account(name, is_peer, parse_account_id(note) or "")

    async def _create_user(self, name: str, *, is_peer: bool) -> Account:
        """Create a user. First delete remains that calls left when an earlier account of this name was removed."""
        with track_replica_use() as answer:
            await self._clear(name)
        if answer.from_replica:
            raise self._build_unreachable_error()
        account = Account(name, is_peer, secrets.token_hex(8))
        made = {"id": account.id, "created_at": self._clock(), "peer": is_peer}
        await self._library.set_note(USER_NOTE_PREFIX + name, json.dumps(made))
        return account

    async def _clear(self, name: str) -> None:
        """Delete the private stores and the grants of the account with this name."""
        homes = list_private_names(name)
        for project in await self._library.list_projects():
            if project.name in homes:
                await self._library.delete(project.name)
        for key in await self._library.list_notes(build_grants_prefix(name)):
            await self._library.set_note(key, None)
        for key, note in (await self._library.list_notes(SUBJECT_NOTES)).items():
            if (parse_json_object(note) or {}).get("user") == name:
                await self._library.set_note(key, None)

    async def _get_grant(self, user: str, project: Project) -> Grant:
        grant = await self._find_grant(user, project)
        if grant is None:
            raise NotFound(
                "grant",
                project.name,
                message=f'Account "{user}" has no access to project "{project.name}".',
                hint="List grants with `everkept account list`.",
            )
        return grant

    async def _find_grant(self, user: str, project: Project) -> Grant | None:
        of_user = await self.list_user_grants(user)
        return next((grant for grant in of_user if grant.project_id == project.id), None)


def _build_leaving_error(name: str) -> Conflict:
    return Conflict(
        f'Account "{name}" is being removed.',
        hint=f"To finish an interrupted removal, run `everkept account remove {name}`.",
        user=name,
    )
