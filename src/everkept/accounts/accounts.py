"""Users, their tokens, and what they are granted."""

import json
import secrets
from collections.abc import Awaitable
from typing import Final, TypeVar

from everkept.accounts.account_library import homes_of, no_project
from everkept.accounts.grants import (
    GRANT,
    WHOSE,
    Access,
    Grant,
    ended_text,
    fields_of,
    grant_key,
    grant_text,
    grants_in,
    grants_key,
    hashed,
    kind_of,
    made_token,
    number_in,
    revoke_token,
    settled_name,
)
from everkept.core.answers import KEPT_SEARCHES
from everkept.core.library import answering
from everkept.core.ports import Library, Token
from everkept.core.projects import Project
from everkept.core.sessions import (
    USERS,
    Account,
    account_id,
    checked_account_name,
    is_home,
    sessions_of,
)
from everkept.core.times import Clock, iso
from everkept.errors import Conflict, NotFound, Refused, StoreAway
from everkept.values import Value

T = TypeVar("T")

# How long the copy of a database that is away is believed about accounts. Who is let out where
# all servers see it is let out here too by then.
BELIEVED_HOURS = 24
BELIEVED = BELIEVED_HOURS * 3600 * 1_000_000  # microseconds
TOLERANCE = 60 * 1_000_000  # microseconds by which the clock may have been set back since


class Unknown:
    """What the account of a token is that nobody has."""


UNKNOWN: Final = Unknown()


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

    async def admitted(self, secret: str) -> Account | Unknown | None:
        """Who comes in with this secret; None: the owner.

        One of an account's form is never the owner's, whatever became of its note. Raises
        StoreAway where all that is known of an account is too old to let it in.
        """
        with answering() as asked:
            account = await self.account_of(hashed(secret))
        if asked.from_replica and isinstance(account, Account):
            self._expect_believable()
        return UNKNOWN if account is None and kind_of(secret) != "owner" else account

    async def account_of(self, secret_hash: str) -> Account | Unknown | None:
        """Whose token it is; None: the owner's."""
        key = WHOSE + secret_hash
        # The note is looked at before the token and, where there is none, behind it too: whoever
        # makes a token writes the note first, and whoever ends one removes it last.
        note = await self._library.note(key)
        if not await self._library.knows_token(secret_hash):
            return UNKNOWN
        note = note or await self._library.note(key)
        return None if note is None else await self._account(note)

    async def create_token(self, user: str, label: str, *, peer: bool = False) -> tuple[Token, str]:
        """A new token of that user and its secret, which cannot be had again.

        The first token makes the user.
        """
        token, secret, secret_hash = made_token(label, self._clock, "peer" if peer else "account")
        account = await self._made_user(user, is_peer=peer)
        # First, so that nobody meets the token without it.
        note = {"user": account.name, "account": account.id, "token": token.id, "peer": peer}
        await self._library.set_note(WHOSE + secret_hash, json.dumps(note))
        await self._library.add_token(token, secret_hash)
        return token, secret

    async def users_of_tokens(self) -> dict[str, User]:
        """By the ids of tokens; those that are not in it are the owner's."""
        users = {user.name: user for user in await self.users()}
        found: dict[str, User] = {}
        for note in (await self._library.notes(WHOSE)).values():
            fields = fields_of(note) or {}
            name, token_id = fields.get("user"), fields.get("token")
            if isinstance(name, str) and isinstance(token_id, str):
                gone = User(name, is_peer=bool(fields.get("peer")), created_at=0)
                found[token_id] = users.get(name) or gone
        return found

    async def users(self) -> list[User]:
        found: list[User] = []
        for key, note in (await self._library.notes(USERS)).items():
            fields = fields_of(note) or {}
            user = User(
                key.removeprefix(USERS),
                is_peer=bool(fields.get("peer")),
                created_at=number_in(fields, "created_at"),
                is_leaving=bool(fields.get("leaving")),
            )
            found.append(user)
        return sorted(found, key=lambda user: user.name)

    async def user(self, name: str) -> User:
        wanted = checked_account_name(name)
        return await self.found(self._user(wanted))

    async def _user(self, wanted: str) -> User:
        found = next((user for user in await self.users() if user.name == wanted), None)
        if found is None:
            hint = (
                "`everkept account list` shows who has one; "
                f"`everkept token --user {wanted}` makes it, with a token."
            )
            raise NotFound("user", wanted, hint=hint)
        return found

    async def grant(self, user: str, project: Project, access: Access) -> Grant:
        """Lets a user see a project; who sees it already, in this way from now on.

        The name that the user knows it by is settled here, and stays.
        """
        if is_home(project.name):  # it is a user's alone
            raise no_project(project.name)
        owner = await self.user(user)
        if owner.is_leaving:
            raise _leaving(owner.name)
        if owner.is_peer and access != "read":
            raise Refused(
                f"{owner.name} is another server, which reads and never writes.",
                hint="Grant it `read`.",
                user=owner.name,
            )
        before = await self._grant(owner.name, project)
        if before is not None and before.access == "own":
            raise Conflict(f'"{project.name}" is {owner.name}\'s own project.', user=owner.name)
        notes = await self._library.notes(grants_key(owner.name))
        name = settled_name(project.name, project.id, notes)
        granted = Grant(
            owner.name, project.id, access, name, before.at if before else self._clock()
        )
        await self._library.set_note(grant_key(owner.name, project.id), grant_text(granted))
        return granted

    async def revoke(self, user: str, project: Project) -> str:
        """Gives the user's name as it is kept; NotFound where nothing is granted."""
        name = (await self.user(user)).name
        grant = await self.found(self._granted(name, project))
        if grant.access == "own":
            raise Refused(
                f'"{project.name}" is {name}\'s own project, which is not taken away.',
                hint="`everkept delete-project` deletes it, `everkept account remove` makes "
                "the projects of an account yours.",
                user=name,
            )
        await self._library.set_note(grant_key(name, project.id), ended_text(grant))
        return name

    async def grants(self) -> list[Grant]:
        """Those of all users, the oldest first."""
        return grants_in(await self._library.notes(GRANT))

    async def grants_of(self, user: str) -> list[Grant]:
        """The oldest first."""
        name = checked_account_name(user)
        return grants_in(await self._library.notes(grants_key(name)))

    async def remove_user(self, name: str) -> None:
        """With tokens, grants and what is the user's alone; projects stay, the owner's then."""
        user = await self.user(name)
        # First: what comes from now on, from a server that was cut off too, is nobody's.
        fields = fields_of(await self._library.note(USERS + user.name)) or {}
        await self._library.set_note(USERS + user.name, json.dumps({**fields, "leaving": True}))
        for token_id, owner in (await self.users_of_tokens()).items():
            if owner.name == user.name:
                await revoke_token(self._library, token_id)
        await self._clear(user.name)
        await self._forget_searches(user.name)
        await self._library.set_note(USERS + user.name, None)  # last: who was cut short tries again

    async def found(self, asked: Awaitable[T]) -> T:
        """What somebody names who changes what accounts see. Raises StoreAway where the database
        is away and what was last seen of it lacks that."""
        with answering() as answer:
            try:
                return await asked
            except NotFound:
                if not answer.from_replica:
                    raise
        raise self._away()

    def _away(self) -> StoreAway:
        return StoreAway(
            "Accounts and what they see cannot be changed while the database is away. Nothing was "
            f"done. {self._library.condition.reason}".rstrip(),
            hint="Try again when it is back.",
        )

    async def _account(self, note: str) -> Account | Unknown:
        """Whose token a note tells of. One that cannot be read lets nobody in, nor does one of
        somebody who was removed, whoever has that name by now."""
        fields = fields_of(note) or {}
        name = fields.get("user")
        if not isinstance(name, str):
            return UNKNOWN
        known = account_id(await self._library.note(USERS + name))
        if known is None or known != fields.get("account", ""):
            return UNKNOWN
        return Account(name, bool(fields.get("peer")), known)

    def _expect_believable(self) -> None:
        at = self._library.condition.accounts_at
        if at is not None and -TOLERANCE <= self._clock() - at <= BELIEVED:
            return
        known = f"since {iso(at)}" if at else "yet"
        raise StoreAway(
            "This token cannot be checked: the database is away, and this server has not heard "
            f"from it {known}. It lets an account in for {BELIEVED_HOURS} hours from then.",
            hint="Try again when the database is back.",
        )

    async def _forget_searches(self, user: str) -> None:
        kept = await self._library.searches(limit=KEPT_SEARCHES)
        others = [s for s in kept if not (s.session or "").startswith(sessions_of(user))]
        if len(others) < len(kept):
            await self._library.forget_searches()
            await self._library.add_searches(list(reversed(others)))

    async def _made_user(self, name: str, *, is_peer: bool) -> Account:
        name = checked_account_name(name)
        note = await self._library.note(USERS + name)
        if note is None:
            return await self._new_user(name, is_peer=is_peer)
        fields = fields_of(note) or {}
        if fields.get("leaving"):
            raise _leaving(name)
        if bool(fields.get("peer")) != is_peer:
            kind = "a person's account" if is_peer else "another server's account"
            raise Conflict(f"{name} is {kind} already.", hint="Choose another name.", user=name)
        return Account(name, is_peer, account_id(note) or "")

    async def _new_user(self, name: str, *, is_peer: bool) -> Account:
        """Calls that were under way when another of this name was removed may have left
        something: that goes first."""
        with answering() as answer:
            await self._clear(name)
        if answer.from_replica:
            raise self._away()
        account = Account(name, is_peer, secrets.token_hex(8))
        made = {"id": account.id, "created_at": self._clock(), "peer": is_peer}
        await self._library.set_note(USERS + name, json.dumps(made))
        return account

    async def _clear(self, name: str) -> None:
        """Deletes what is for the account of this name alone, and what is granted to it."""
        homes = homes_of(name)
        for project in await self._library.projects():
            if project.name in homes:
                await self._library.delete(project.name)
        for key in await self._library.notes(grants_key(name)):
            await self._library.set_note(key, None)

    async def _granted(self, user: str, project: Project) -> Grant:
        grant = await self._grant(user, project)
        if grant is None:
            raise NotFound(
                "grant",
                project.name,
                message=f'"{project.name}" is not granted to {user}.',
                hint="`everkept account list` shows what is.",
            )
        return grant

    async def _grant(self, user: str, project: Project) -> Grant | None:
        of_user = await self.grants_of(user)
        return next((grant for grant in of_user if grant.project_id == project.id), None)


def _leaving(name: str) -> Conflict:
    return Conflict(
        f"{name} is being removed.",
        hint=f"`everkept account remove {name}` finishes it, if that was cut short.",
        user=name,
    )
