"""The edits that progress, notes and decisions make to the texts of a bank's files."""

from collections.abc import Callable, Sequence

from everkept.families.bank.files.bank_files import Change
from everkept.families.bank.text.entries import ProgressEntry, entry_id, progress_block
from everkept.families.bank.text.headings import CURRENT_NOTES, HISTORY, SESSION_NOTES
from everkept.families.bank.text.markdown import appended, inserted_at_top

PROGRESS_BEGINS = "# Progress\n\n## Update History\n"
CONTEXT_BEGINS = "# Current Context\n"
DECISIONS_BEGIN = "# Decision Log\n"


def history_line(line: str) -> Change:
    return lambda text: inserted_at_top(_or(text, PROGRESS_BEGINS), HISTORY, line)


def tracked_note(line: str) -> Change:
    """Beside an entry of the history; either heading of the notes will do, the newer one first."""
    return lambda text: inserted_at_top(_or(text, CONTEXT_BEGINS), CURRENT_NOTES, line)


def noted(text: str | None, line: str) -> str:
    return inserted_at_top(_or(text, CONTEXT_BEGINS), SESSION_NOTES, line)


def decided(block: str) -> Change:
    return lambda text: appended(_or(text, DECISIONS_BEGIN), block)


class HistoryEntry:
    """An entry of several lines; its id is known once it is written."""

    def __init__(self, at: int, entry: ProgressEntry) -> None:
        self._at = at
        self._entry = entry
        self.id = ""

    def __call__(self, text: str | None) -> str:
        self.id = entry_id(self._at, text or "")
        block = progress_block(self._at, self.id, self._entry)
        return inserted_at_top(_or(text, PROGRESS_BEGINS), HISTORY, block)


def in_turn(changes: Sequence[Callable[[str], str]]) -> Change:
    """Several edits of the active context; a file that would stay empty is not made."""

    def change(text: str | None) -> str | None:
        edited = _or(text, CONTEXT_BEGINS)
        for step in changes:
            edited = step(edited)
        return None if text is None and edited == CONTEXT_BEGINS else edited

    return change


def _or(text: str | None, beginning: str) -> str:
    return text if text is not None and text.strip("\ufeff \t\r\n") else (text or "") + beginning
