"""What was said and done in a session: prompts that say something, decisions, its own work."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from everkept.core.context_text import as_data
from everkept.core.records import Record, Where
from everkept.core.text import clipped, digest
from everkept.core.times import ago
from everkept.families.history.model import DECISION, TURN
from everkept.families.memories.context import Entry, entry_of, is_current
from everkept.families.memories.memory_identity import MEMORY
from everkept.hooks.events import Around, HookEvent
from everkept.hooks.tool_use import command_of_failure, is_automatic
from everkept.hooks.workspace import EDITED, FAILED, FIXED
from everkept.language.sentences import is_decision, sentences, without_blocks
from everkept.language.telling_words import FILLING
from everkept.patterns import compile_late

if TYPE_CHECKING:
    from everkept.core.ports import ReadingRoom, RecordStore

LONGEST_DECISION = 300  # characters
LONGEST_PROMPT = 300
MAX_TURN_CHARACTERS = 20_000  # characters of a turn
FEWEST_WORDS = 2

_WORD = compile_late(r"\w[\w'’.-]*")
_WORDY = 4  # characters, where a script puts no blanks between words


def says_something(prompt: str) -> bool:
    """Not `hi`, nor `ok, go on`, nor a command of the assistant's own without more."""
    words = [word.lower() for word in _WORD.findall(prompt)]
    telling = [word for word in words if word not in FILLING]
    if any(not word.isascii() and len(word) >= _WORDY for word in telling):
        return True
    is_command = prompt.lstrip().startswith("/") and len(words) < FEWEST_WORDS
    return len(telling) >= FEWEST_WORDS and not is_command


def prompt_line(prompt: str) -> str:
    """Its beginning, without blocks of code where there is anything else."""
    begun = prompt[: 4 * LONGEST_PROMPT]
    return clipped(without_blocks(begun).strip() or begun, LONGEST_PROMPT)


def decided_in(text: str) -> list[str]:
    """The sentences that say a decision."""
    read = text[:MAX_TURN_CHARACTERS]
    if not is_decision(read):  # quick, and true of few texts
        return []
    return [clipped(each, LONGEST_DECISION) for each in sentences(read) if is_decision(each)]


def decisions_of(texts: Iterable[str], most: int) -> list[str]:
    """Those of turns that are known to be some, each once."""
    found: dict[str, None] = {}
    for text in texts:
        told = decided_in(text) or [clipped(text[: 4 * LONGEST_DECISION], LONGEST_DECISION)]
        found |= dict.fromkeys(told)
    return list(found)[:most]


MOST_READ = 300_000  # bytes, the last
MAX_SAID_CHARACTERS = 20_000  # characters that are read of what one said


class Said(NamedTuple):
    text: str
    by_user: bool
    at: int | None  # microseconds since 1970


def said_of_late(transcript: Path, session: str) -> list[Said]:
    """By the user and the assistant themselves, in order; nothing where it cannot be read."""
    try:
        tail = _tail(transcript)
    except OSError:
        return []
    return [said for record in _records(tail) for said in _said_in(record, session)]


def _tail(transcript: Path) -> bytes:
    if not transcript.is_file():  # one could wait for anything else for ever
        return b""
    with transcript.open("rb") as opened:
        start = max(0, opened.seek(0, 2) - MOST_READ)
        opened.seek(start)
        tail = opened.read(MOST_READ)
    return tail.partition(b"\n")[2] if start else tail


def _records(tail: bytes) -> Iterator[Mapping[str, Any]]:
    from everkept.transcripts.source_programs import NoRecord, record_of

    for line in tail.split(b"\n"):
        if b'"user"' in line or b'"assistant"' in line or b'"attachment"' in line:
            try:
                yield record_of(line) or {}
            except NoRecord:
                continue


def _said_in(record: Mapping[str, Any], session: str) -> Iterator[Said]:
    from everkept.transcripts.claude_code import blocks_of, prompt_of, words
    from everkept.transcripts.source_programs import mapping, moment, string

    is_aside = any(record.get(mark) is True for mark in ("isSidechain", "isMeta"))
    is_no_speech = any(
        record.get(mark) is True for mark in ("isCompactSummary", "isApiErrorMessage")
    )
    if is_aside or is_no_speech or string(record.get("sessionId")) not in ("", session):
        return
    kind, at = string(record.get("type")), moment(record.get("timestamp"))
    if kind == "assistant":
        for block in blocks_of(mapping(record.get("message")).get("content")):
            if block.get("type") == "text" and (text := string(block.get("text")).strip()):
                yield Said(text[:MAX_SAID_CHARACTERS], by_user=False, at=at)
    elif kind in ("user", "attachment") and (text := words(prompt_of(record))):
        yield Said(text[:MAX_SAID_CHARACTERS], by_user=True, at=at)


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
        from everkept.core.secrets import masked

        return [each._replace(text=masked(each.text)[0]) for each in said]
    return said


async def _is_off(room: "ReadingRoom | None", event: HookEvent) -> bool:
    silences = [] if room is None else await room.silences()
    if all(silence.until is not None for silence in silences):
        return False
    from everkept.core.projects import key_of_workspace
    from everkept.families.history.off_folders import Quiet

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
