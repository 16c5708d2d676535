"""Subjects of an OpenID provider: the account of each person who signs in there, as the owner decided."""

import hashlib
import json

from everkept.accounts.accounts import Accounts, UnknownAccount
from everkept.accounts.grants import SUBJECT_NOTES
from everkept.core.ports import Library
from everkept.core.sessions import Account, validate_account_name
from everkept.core.text import parse_json_object
from everkept.errors import Conflict, InvalidInput, NotFound
from everkept.values import Value

MAX_SUBJECT_CHARACTERS = 255  # as OpenID Connect limits it


class LinkedSubject(Value):
    """Person at an OpenID provider, and the account that their tokens have here."""

    issuer: str
    subject: str
    user: str


class UnlinkedSubject(UnknownAccount):
    """Result for a valid token of a person that the owner has not linked to an account."""

    def __init__(self, subject: str) -> None:
        self.subject = subject


class Subjects:
    """Links between subjects and accounts, in library notes. Changes apply from the next request."""

    def __init__(self, library: Library, accounts: Accounts) -> None:
        self._library = library
        self._accounts = accounts

    async def find_account(self, issuer: str, subject: str) -> Account | UnknownAccount:
        """Return the account of a subject, whose token is already checked. It is never the owner's."""
        found = await self._accounts.read_note_account(_build_key(issuer, subject))
        return UnlinkedSubject(subject) if found is None else found

    async def link(self, user: str, issuer: str, subject: str) -> LinkedSubject:
        """Link a subject to an account. Create the account if it is missing. Raise Conflict if it has another."""
        _validate_subject(subject)
        key = _build_key(issuer, subject)
        current = await self.find_account(issuer, subject)
        if isinstance(current, Account) and current.name != validate_account_name(user):
            raise Conflict(
                f'"{subject}" is already linked to account "{current.name}".',
                hint=f"Unlink it first with `everkept account unlink {subject}`.",
                user=current.name,
            )
        account = await self._accounts.ensure_user(user)
        note = {"user": account.name, "account": account.id, "issuer": issuer, "subject": subject}
        await self._library.set_note(key, json.dumps(note))
        return LinkedSubject(issuer, subject, account.name)

    async def unlink(self, issuer: str, subject: str) -> LinkedSubject:
        key = _build_key(issuer, subject)
        note = parse_json_object(await self._accounts.look_up(self._get_note(key, subject))) or {}
        await self._library.set_note(key, None)
        return LinkedSubject(issuer, subject, str(note.get("user")))

    async def list(self) -> list[LinkedSubject]:
        """Return all links, sorted by account."""
        found: list[LinkedSubject] = []
        for text in (await self._library.list_notes(SUBJECT_NOTES)).values():
            note = parse_json_object(text) or {}
            names = [note.get(name) for name in ("issuer", "subject", "user")]
            if all(isinstance(name, str) for name in names):
                found.append(LinkedSubject(*map(str, names)))
        return sorted(found, key=lambda each: (each.user, each.issuer, each.subject))

    async def _get_note(self, key: str, subject: str) -> str:
        note = await self._library.get_note(key)
        if note is None:
            raise NotFound("subject", subject, hint="List links with `everkept account list`.")
        return note


def _build_key(issuer: str, subject: str) -> str:
    return SUBJECT_NOTES + hashlib.sha256(json.dumps([issuer, subject]).encode()).hexdigest()


def _validate_subject(subject: str) -> None:
    if not subject or len(subject) > MAX_SUBJECT_CHARACTERS or not subject.isprintable():
        raise InvalidInput(
            f"`subject` must have 1 to {MAX_SUBJECT_CHARACTERS} characters, all printable.", argument="subject"
        )
