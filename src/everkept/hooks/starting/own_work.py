"""What a session itself has decided and done, which a compaction of its context loses."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from everkept.core.data_fence import as_data
from everkept.core.records import Record, Where
from everkept.core.secrets import masked
from everkept.core.text import digest
from everkept.core.times import ago
from everkept.families.history.model import DECISION, TURN
from everkept.families.memories.context import entry_of, is_current
from everkept.families.memories.filling import Entry
from everkept.families.memories.kinds import MEMORY
from everkept.hooks.model import Around, HookEvent
from everkept.hooks.noticing.notices import command_of_failure
from everkept.hooks.noticing.tags import EDITED, FAILED, FIXED, is_automatic
from everkept.hooks.starting.gist import decided_in, decisions_of, prompt_line, says_something
from everkept.hooks.starting.transcript_tail import Said, said_of_late

if TYPE_CHECKING:
    from everkept.core.ports import ReadingRoom, RecordStore

LOOKED_AT = 200  # memories of the session
MOST_DECISIONS, MOST_PROMPTS, MOST_STATED, MOST_NOTICED, MOST_FILES = 10, 6, 20, 8, 40
LONGEST_TEXT = 2_000  # characters that are read of a memory


async def own_work(
    store: "RecordStore | None", history: "RecordStore | None", event: HookEvent, around: Around
) -> list[Entry]:
    """What was decided and asked, which files it edited, what it stored, which commands failed."""
    if not event.session:
        return []
    said = await _said(event, around)
    own = [record for record in await _stored(store, event.session) if is_current(record)]
    noticed = [record for record in own if is_automatic(record)]
    stated = [record for record in own if not is_automatic(record)]
    edits = [record for record in noticed if EDITED in record.tags]
    shown = [*stated[:MOST_STATED], *_commands(noticed)[:MOST_NOTICED]]
    return [
        *await _decisions(history, said, event.session, around.now),
        *_prompts(said, around.now),
        *_files(edits, around.now),
        *(entry_of(record, LONGEST_TEXT, around.now) for record in shown),
    ]


async def _said(event: HookEvent, around: Around) -> list[Said]:
    """The newest first; nothing of a folder that is off, as with what the history has."""
    if event.transcript is None or await _is_off(around.room, event):
        return []
    said = said_of_late(event.transcript, event.session)[::-1]
    if around.settings.mask_secrets:
        return [each._replace(text=masked(each.text)[0]) for each in said]
    return said


async def _is_off(room: "ReadingRoom | None", event: HookEvent) -> bool:
    silences = [] if room is None else await room.silences()
    if all(silence.until is not None for silence in silences):
        return False
    from everkept.app.workspaces import key_of_workspace
    from everkept.families.history.importing.quiet import Quiet

    return Quiet(silences, key_of_workspace).switched_off(str(event.folder or "")) is not None


async def _stored(store: "RecordStore | None", session: str) -> list[Record]:
    where = Where(kinds=(MEMORY,), sessions=(session,))
    return [] if store is None else await store.scan(where, order="newest", limit=LOOKED_AT)


async def _decisions(
    history: "RecordStore | None", said: Sequence[Said], session: str, now: int
) -> list[Entry]:
    """Sentence by sentence, so that one is known for the same in transcript and history."""
    where = Where(kinds=(TURN,), types=(DECISION,), sessions=(session,))
    turns = (
        [] if history is None else await history.scan(where, order="newest", limit=MOST_DECISIONS)
    )
    found = {text: each for each in said for text in decided_in(each.text)}
    for turn in turns:
        spoken = Said(turn.text, turn.author == "user", turn.at)
        found |= {t: spoken for t in decisions_of([turn.text], MOST_DECISIONS) if t not in found}
    newest = sorted(found.items(), key=lambda item: -(item[1].at or now))
    return [_quoted(text, "decided", by, now) for text, by in newest[:MOST_DECISIONS]]


def _prompts(said: Sequence[Said], now: int) -> Iterator[Entry]:
    asked = [each for each in said if each.by_user and says_something(each.text)]
    for each in asked[:MOST_PROMPTS]:
        yield _quoted(prompt_line(each.text), "asked", each, now)


def _quoted(text: str, what: str, said: Said, now: int) -> Entry:
    at = now if said.at is None else said.at
    line, mark = as_data(text), digest(text)
    record = Record(id=f"{what}:{mark}", kind=what, created_at=at, updated_at=at)
    by = "user" if said.by_user else "assistant"
    return Entry(record, line, f"{what} by the {by}; {ago(at, now)}", mark)


def _files(records: Sequence[Record], now: int) -> list[Entry]:
    """All on one line: there may be many."""
    names = list(dict.fromkeys(name for record in records if (name := _file(record))))
    text = as_data(", ".join(names[:MOST_FILES]))
    if not text:
        return []
    source = f"edited; the last one {ago(records[0].at, now)}"
    return [Entry(records[0], f"Files: {text}", source, digest(text))]


def _file(record: Record) -> str:
    source = cast(Mapping[str, Any], record.facets.get("source") or {})
    return str(source.get("file") or "")


def _commands(noticed: Sequence[Record]) -> list[Record]:
    """Without failures of what works again."""
    mended = {
        command_of_failure(record.text): record.at
        for record in reversed(noticed)
        if FIXED in record.tags
    }
    return [
        record
        for record in noticed
        if EDITED not in record.tags
        and (
            FAILED not in record.tags
            or mended.get(command_of_failure(record.text), record.at - 1) < record.at
        )
    ]
