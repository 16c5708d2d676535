"""Recap of a session: meaningful prompts, decisions, edited files, stored memories and failed commands."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from everkept.core.context_text import as_data
from everkept.core.disk import read_tail
from everkept.core.records import Record, RecordFilter
from everkept.core.text import clip_text, compute_digest
from everkept.core.times import format_ago
from everkept.families.history.model import DECISION, TURN
from everkept.families.memories.context import ContextEntry, build_entry, is_current
from everkept.families.memories.memory_identity import MEMORY
from everkept.hooks.events import HookContext, HookEvent
from everkept.hooks.tool_use import extract_command, is_automatic
from everkept.hooks.workspace import EDITED_TAG, FAILED_TAG, FIXED_TAG
from everkept.language.sentences import is_decision, remove_blocks, split_sentences
from everkept.language.telling_words import FILLER_WORDS
from everkept.patterns import compile_late

if TYPE_CHECKING:
    from everkept.core.ports import ReadOnlyLibrary, RecordStore

MAX_DECISION_CHARACTERS = 300
MAX_PROMPT_CHARACTERS = 300
MAX_TURN_CHARACTERS = 20_000  # read of each turn
MIN_WORDS = 2

_WORD = compile_late(r"\w[\w'’.-]*")
_MIN_WORD_CHARACTERS = 4  # in a script without spaces between words


def is_meaningful(prompt: str) -> bool:
    """Return whether a prompt is more than a greeting, an `ok, go on` or a bare command to the assistant."""
    words = [word.lower() for word in _WORD.findall(prompt)]
    telling = [word for word in words if word not in FILLER_WORDS]
    if any(not word.isascii() and len(word) >= _MIN_WORD_CHARACTERS for word in telling):
        return True
    is_command = prompt.lstrip().startswith("/") and len(words) < MIN_WORDS
    return len(telling) >= MIN_WORDS and not is_command


def format_prompt(prompt: str) -> str:
    """Return the beginning of the prompt, without code blocks unless it consists of code only."""
    begun = prompt[: 4 * MAX_PROMPT_CHARACTERS]
    return clip_text(remove_blocks(begun).strip() or begun, MAX_PROMPT_CHARACTERS)


def extract_decisions(text: str) -> list[str]:
    """Return the sentences that state a decision."""
    read = text[:MAX_TURN_CHARACTERS]
    if not is_decision(read):  # quick, and true of few texts
        return []
    return [clip_text(each, MAX_DECISION_CHARACTERS) for each in split_sentences(read) if is_decision(each)]


def collect_decisions(texts: Iterable[str], most: int) -> list[str]:
    """Return the decisions of turns that are known to contain one, each once."""
    found: dict[str, None] = {}
    for text in texts:
        told = extract_decisions(text) or [clip_text(text[: 4 * MAX_DECISION_CHARACTERS], MAX_DECISION_CHARACTERS)]
        found |= dict.fromkeys(told)
    return list(found)[:most]


MAX_TAIL_BYTES = 300_000  # at the end of the transcript
MAX_UTTERANCE_CHARACTERS = 20_000  # read of each utterance


class Utterance(NamedTuple):
    text: str
    by_user: bool
    at: int | None  # microseconds since 1970


def read_recent_utterances(transcript: Path, session: str) -> list[Utterance]:
    """Return what the user and the assistant said, in order. Return nothing if the file cannot be read."""
    try:
        tail = read_tail(transcript, MAX_TAIL_BYTES)
    except OSError:
        return []
    return [said for record in _parse_records(tail) for said in _extract_utterances(record, session)]


def _parse_records(tail: bytes) -> Iterator[Mapping[str, Any]]:
    from everkept.transcripts.source_programs import NoRecord, parse_record

    for line in tail.split(b"\n"):
        if b'"user"' in line or b'"assistant"' in line or b'"attachment"' in line:
            try:
                yield parse_record(line) or {}
            except NoRecord:
                continue


def _extract_utterances(record: Mapping[str, Any], session: str) -> Iterator[Utterance]:
    from everkept.transcripts.claude_code import extract_user_text, find_prompt, list_blocks
    from everkept.transcripts.source_programs import as_mapping, as_text, parse_time

    is_aside = any(record.get(mark) is True for mark in ("isSidechain", "isMeta"))
    is_no_speech = any(record.get(mark) is True for mark in ("isCompactSummary", "isApiErrorMessage"))
    if is_aside or is_no_speech or as_text(record.get("sessionId")) not in ("", session):
        return
    kind, at = as_text(record.get("type")), parse_time(record.get("timestamp"))
    if kind == "assistant":
        for block in list_blocks(as_mapping(record.get("message")).get("content")):
            if block.get("type") == "text" and (text := as_text(block.get("text")).strip()):
                yield Utterance(text[:MAX_UTTERANCE_CHARACTERS], by_user=False, at=at)
    elif kind in ("user", "attachment") and (text := extract_user_text(find_prompt(record))):
        yield Utterance(text[:MAX_UTTERANCE_CHARACTERS], by_user=True, at=at)


MAX_SESSION_MEMORIES = 200
MAX_DECISIONS, MAX_PROMPTS, MAX_STATED_MEMORIES, MAX_AUTOMATIC_MEMORIES, MAX_FILES = (10, 6, 20, 8, 40)
MAX_TEXT_CHARACTERS = 2_000  # read of each memory


async def recap_session(
    store: "RecordStore | None", history: "RecordStore | None", event: HookEvent, around: HookContext
) -> list[ContextEntry]:
    """Return entries for decisions, prompts, edited files, stored memories and failed commands."""
    if not event.session:
        return []
    said = await _read_utterances(event, around)
    where = RecordFilter(kinds=(MEMORY,), sessions=(event.session,))
    found = [] if store is None else await store.scan(where, order="newest", limit=MAX_SESSION_MEMORIES)
    own = [record for record in found if is_current(record)]
    noticed = [record for record in own if is_automatic(record)]
    stated = [record for record in own if not is_automatic(record)]
    edits = [record for record in noticed if EDITED_TAG in record.tags]
    shown = [*stated[:MAX_STATED_MEMORIES], *_select_commands(noticed)[:MAX_AUTOMATIC_MEMORIES]]
    return [
        *await _build_decisions(history, said, event.session, around.now),
        *_build_prompts(said, around.now),
        *_build_files(edits, around.now),
        *(build_entry(record, MAX_TEXT_CHARACTERS, around.now) for record in shown),
    ]


async def _read_utterances(event: HookEvent, around: HookContext) -> list[Utterance]:
    """Return the newest utterances first. Like the history, return nothing from a folder that is off."""
    if event.transcript is None or await _is_off(around.room, event):
        return []
    said = read_recent_utterances(event.transcript, event.session)[::-1]
    if around.settings.mask_secrets:
        from everkept.core.secrets import mask_text

        return [each._replace(text=mask_text(each.text)[0]) for each in said]
    return said


async def _is_off(room: "ReadOnlyLibrary | None", event: HookEvent) -> bool:
    silences = [] if room is None else await room.list_off_periods()
    if all(silence.until is not None for silence in silences):
        return False
    from everkept.core.projects import find_workspace_key
    from everkept.families.history.off_folders import OffFolders

    return OffFolders(silences, find_workspace_key).find_off_folder(str(event.folder or "")) is not None


async def _build_decisions(
    history: "RecordStore | None", said: Sequence[Utterance], session: str, now: int
) -> list[ContextEntry]:
    """Split decisions into sentences, so that the same one in transcript and history appears once."""
    where = RecordFilter(kinds=(TURN,), types=(DECISION,), sessions=(session,))
    turns = [] if history is None else await history.scan(where, order="newest", limit=MAX_DECISIONS)
    found = {text: each for each in said for text in extract_decisions(each.text)}
    for turn in turns:
        spoken = Utterance(turn.text, turn.author == "user", turn.effective_at)
        found |= {t: spoken for t in collect_decisions([turn.text], MAX_DECISIONS) if t not in found}
    newest = sorted(found.items(), key=lambda item: -(item[1].at or now))
    return [_quote_utterance(text, "decided", by, now) for text, by in newest[:MAX_DECISIONS]]


def _build_prompts(said: Sequence[Utterance], now: int) -> Iterator[ContextEntry]:
    asked = [each for each in said if each.by_user and is_meaningful(each.text)]
    for each in asked[:MAX_PROMPTS]:
        yield _quote_utterance(format_prompt(each.text), "asked", each, now)


def _quote_utterance(text: str, what: str, said: Utterance, now: int) -> ContextEntry:
    at = now if said.at is None else said.at
    line, mark = as_data(text), compute_digest(text)
    record = Record(id=f"{what}:{mark}", kind=what, created_at=at, updated_at=at)
    by = "user" if said.by_user else "assistant"
    return ContextEntry(record, line, f"{what} by the {by}; {format_ago(at, now)}", mark)


def _build_files(records: Sequence[Record], now: int) -> list[ContextEntry]:
    """Return one entry for all files, because there may be many."""
    names = list(dict.fromkeys(name for record in records if (name := _get_file(record))))
    text = as_data(", ".join(names[:MAX_FILES]))
    if not text:
        return []
    source = f"edited; most recently {format_ago(records[0].effective_at, now)}"
    return [ContextEntry(records[0], f"Files: {text}", source, compute_digest(text))]


def _get_file(record: Record) -> str:
    source = cast(Mapping[str, Any], record.facets.get("source") or {})
    return str(source.get("file") or "")


def _select_commands(noticed: Sequence[Record]) -> list[Record]:
    """Return the commands without failures that were fixed later."""
    mended = {
        extract_command(record.text): record.effective_at for record in reversed(noticed) if FIXED_TAG in record.tags
    }
    return [
        record
        for record in noticed
        if EDITED_TAG not in record.tags
        and (
            FAILED_TAG not in record.tags
            or mended.get(extract_command(record.text), record.effective_at - 1) < record.effective_at
        )
    ]
