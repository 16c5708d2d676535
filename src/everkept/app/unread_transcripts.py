"""Transcripts on this machine of which nothing is imported yet."""

from collections import Counter
from collections.abc import Mapping, Sequence

from everkept.core.ports import RecordStore
from everkept.core.text import format_count, join_words
from everkept.core.transcripts import Transcript
from everkept.families.history.model import build_transcript_id
from everkept.values import Value

PROGRAM_TITLES = {"claude-code": "Claude Code", "codex": "Codex", "gemini": "Gemini CLI", "cursor": "Cursor"}
IMPORT_BYTES_PER_SECOND = 2_000_000  # on a laptop; embeddings come later
_PAGE = 500  # ids per question


class UnreadTranscripts(Value):
    """Number of transcripts of each program, and their bytes."""

    counts: Mapping[str, int]
    size: int

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def describe(self) -> str:
        """Return `1,240 conversations of Claude Code and Codex`."""
        return f"{format_count(self.total, 'conversation')} of {join_words(self.list_titles())}"

    def list_titles(self) -> list[str]:
        """Return the names of the programs."""
        return [PROGRAM_TITLES.get(source, source) for source in self.counts]

    def format_duration(self) -> str:
        """Return roughly how long their import takes."""
        seconds = self.size // IMPORT_BYTES_PER_SECOND
        return f"about {round(seconds / 60)} minutes" if seconds >= 100 else f"about {max(1, seconds)} s"


async def find_stored(store: RecordStore, ids: Sequence[str]) -> set[str]:
    """Return which of these ids the store has."""
    found: set[str] = set()
    for start in range(0, len(ids), _PAGE):
        found |= {record.id for record in await store.get(ids[start : start + _PAGE])}
    return found


async def find_unread(found: Sequence[Transcript], history: RecordStore | None) -> UnreadTranscripts:
    """Count the transcripts that no import has read. Without a history, that is all of them."""
    by_id = {build_transcript_id(each.source, each.name): each for each in found if each.size}
    read = await find_stored(history, [*by_id]) if history is not None else ()
    unread = [transcript for name, transcript in by_id.items() if name not in read]
    return UnreadTranscripts(Counter(each.source for each in unread), sum(each.size for each in unread))
