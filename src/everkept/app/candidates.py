"""Candidates for memories: lasting statements in conversations that a person has not reviewed yet.

They are not stored. Each review finds them in the conversations again, so a purge or an exclusion needs no second
place. Only the digest of a reviewed statement is kept, in a note.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from everkept.core.ports import Library
from everkept.core.records import Record, RecordFilter
from everkept.core.text import compute_digest
from everkept.core.times import Clock
from everkept.core.transcripts import ASSISTANT
from everkept.families.history.model import CONVERSATION, SUMMARY, TURN, HistoryOptions
from everkept.language.lasting_statements import StatementKind, find_statements
from everkept.values import Value

REVIEWED_NOTES = "candidate.reviewed "  # prefix of the notes about reviewed statements
MAX_TURNS = 20_000  # the newest ones are searched
_ID_CHARACTERS = 8


class Candidate(Value):
    """One statement, with the newest turn that has it."""

    id: str
    kind: StatementKind
    text: str
    turn: str
    conversation: str
    title: str
    folder: str | None
    session: str | None
    at: int


class CandidateFinder:
    def __init__(self, library: Library, options: HistoryOptions, clock: Clock) -> None:
        self._library = library
        self._options = options
        self._clock = clock

    async def find(self, limit: int, *, folder: Path | None = None, session: str | None = None) -> list[Candidate]:
        """Return candidates, newest first: of all conversations, or of those in a folder or of a session."""
        from everkept.families.history.off_folders import open_visible_history

        past = await open_visible_history(self._library, self._options)
        where = RecordFilter(kinds=(TURN,), sessions=None if session is None else (session,))
        turns = await past.store.scan(where, order="newest", limit=MAX_TURNS)
        is_meant = _match_folder(folder)
        reviewed = {key.removeprefix(REVIEWED_NOTES) for key in await self._library.list_notes(REVIEWED_NOTES)}
        found: dict[str, tuple[Record, StatementKind, str]] = {}
        for turn in turns:
            if turn.author == ASSISTANT or turn.type == SUMMARY or not is_meant(turn.scope):
                continue
            for statement in find_statements(turn.text):
                digest = compute_candidate_id(statement.text)
                if digest not in reviewed:
                    found.setdefault(digest, (turn, statement.kind, statement.text))
            if len(found) >= limit:
                break
        chosen = dict(list(found.items())[:limit])
        parents = {turn.parent for turn, _, _ in chosen.values() if turn.parent}
        titles = {r.id: r.name or "" for r in await past.store.get([*parents]) if r.kind == CONVERSATION}
        return [
            Candidate(
                digest,
                kind,
                text,
                turn.id,
                turn.parent or "",
                titles.get(turn.parent or "", ""),
                turn.scope,
                turn.session,
                turn.effective_at,
            )
            for digest, (turn, kind, text) in chosen.items()
        ]

    async def mark_reviewed(self, ids: Sequence[str], result: str) -> None:
        """Note that a person kept or dropped the statements, so that they do not come again."""
        for each in ids:
            await self._library.set_note(REVIEWED_NOTES + each, f"{self._clock()} {result}")


def compute_candidate_id(text: str) -> str:
    """Return the same id for a statement that differs only by case, spaces and punctuation."""
    words = "".join(c if c.isalnum() else " " for c in text.casefold()).split()
    return compute_digest(" ".join(words))[:_ID_CHARACTERS]


def _match_folder(folder: Path | None) -> Callable[[str | None], bool]:
    """Return a test for the folder of a conversation: it must be this folder or inside it."""
    roots = () if folder is None else tuple(dict.fromkeys((str(folder), str(folder.resolve()))))
    inside = tuple(f"{root}{separator}" for root in roots for separator in "/\\")
    return lambda scope: not roots or scope in roots or (scope or "").startswith(inside)
