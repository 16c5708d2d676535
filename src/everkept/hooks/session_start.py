"""SessionStart: what a session should know before the first prompt, within a token budget."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.core.context_text import as_data, token_count
from everkept.core.projects import checkout_of
from everkept.core.records import Record, Where
from everkept.core.text import counted, digest
from everkept.core.times import ago
from everkept.errors import ProjectArchived
from everkept.families.history.model import CONVERSATION, DECISION, SUMMARY, TURN
from everkept.families.memories.context import Entry, Filling, entry_of, fenced, is_current, ranked
from everkept.families.memories.memory_identity import MEMORY, SESSION
from everkept.hooks.events import Answer, Around, HookEvent
from everkept.hooks.tool_use import is_automatic
from everkept.hooks.workspace import (
    EDITED,
    FAILED,
    FIXED,
    WORKED,
    is_todo,
    open_todos,
    past_of,
    project_of,
)
from everkept.settings import chosen_toolsets
from everkept.values import Value, replace

if TYPE_CHECKING:
    from everkept.core.ports import ReadingRoom, RecordStore
    from everkept.settings import Settings

LONGEST = 7_500  # characters: clients put more than 8,000 aside
TITLE = "## Memory of earlier work\nFrom Everkept, on this machine."

BEFORE = "before"
PROJECT = "project"
TODOS = "todos"
USER = "user"
PAST = "past"
HEADINGS: Mapping[str, str] = {  # the first that has something may take half of the room
    BEFORE: "### This Session Before Its Compaction",
    PROJECT: "### Project Knowledge",
    TODOS: "### Open Todos",
    USER: "### User Preferences",
    PAST: "### Recent Sessions",
}

Sections = Mapping[str, Sequence[Entry]]


class Briefing(Value):
    """`ids` are those of what stands in the text; without any there is no text."""

    text: str
    ids: tuple[str, ...]


def briefing(sections: Sections, budget: int, more: str) -> Briefing:
    """As much of the sections as fits into the budget of tokens and a client's limit.

    `more` says where more is found.
    """
    entries = {name: list(sections.get(name, ())) for name in HEADINGS if sections.get(name)}
    room = budget - token_count(_framed("\n", more))
    while entries and room > 0:
        filling = Filling(entries, HEADINGS, room)
        body = filling.text()
        text = _framed(body, more) if body else ""
        if len(text) <= LONGEST:
            return Briefing(text, tuple(record.id for record in filling.used))
        room = room * LONGEST // len(text) - 1
    return Briefing("", ())


def without(sections: Sections, ids: set[str]) -> dict[str, list[Entry]]:
    """What is left when these are known already."""
    return {
        name: [entry for entry in entries if entry.record.id not in ids]
        for name, entries in sections.items()
    }


def _framed(body: str, more: str) -> str:
    return "\n".join(part for part in (TITLE, fenced(body), more) if part)


MOST_READ = 200_000  # bytes; a list of tasks that is longer is read in part
_PLACEHOLDER = re.compile(r"\[[^\]]*\]")  # an item of a template that nobody filled in


def open_tasks(folder: Path, bank: str) -> list[str]:
    """In their order; none where there is no bank, or none that can be read."""
    place = _bank_of(folder, bank)
    if place is None:
        return []
    from everkept.families.bank.model import ACTIVE, LEGACY_NAMES

    texts = (_text(place / name, place) for name in (ACTIVE, LEGACY_NAMES[ACTIVE]))
    text = next(filter(None, texts), "")
    if not text:
        return []
    from everkept.families.bank.markdown_sections import TASKS, box_of, listed, without_box

    items = [without_box(item) for item in listed(text, TASKS) if box_of(item) is not True]
    return [item for item in items if not _PLACEHOLDER.fullmatch(item.strip())]


def _bank_of(folder: Path, name: str) -> Path | None:
    """The folder's own, else that of the repository around it; not what only a link leads to."""
    try:
        for home in (folder.resolve(), checkout_of(folder)):
            if home is not None and (home / name).is_dir():
                place = (home / name).resolve()
                return place if place.is_relative_to(home.resolve()) else None
    except (OSError, RuntimeError):  # RuntimeError: a circle of links
        return None
    return None


def _text(file: Path, place: Path) -> str:
    try:
        if not file.is_file() or not file.resolve().is_relative_to(place):
            return ""
        with file.open("rb") as opened:
            return opened.read(MOST_READ).decode("utf-8", "replace")
    except OSError:
        return ""


MAX_SESSION_RECORDS = 40  # records a question, of which some may not be meant
MAX_TITLE_CHARACTERS = 1_000  # characters that are read of a title
FIRST_TURNS, LAST_TURNS = 6, 12  # of a conversation, for what was asked first and last
MOST_DECISIONS = 3  # of a conversation
TOPICS = "Key topics: "  # behind which the summary of a session names them
_TELL_NOTHING = frozenset({EDITED, FAILED, FIXED, WORKED})  # tags of what hooks store


class _Talk(Value):
    """What is known of one session: a conversation, what it came to, or both."""

    record: Record
    ended: int
    topics: tuple[str, ...] = ()
    asked: Sequence[str] = ()  # in their order
    decided: Sequence[str] = ()  # the texts of turns


async def former_sessions(
    store: "RecordStore | None",
    history: "RecordStore | None",
    folder: Path | None,
    session: str,
    now: int,
    most: int,
) -> list[Entry]:
    """The newest first, but the session itself.

    What it was about, what was decided and what was asked last; or what its memories were about.
    """
    summed_up = await _summed_up(store)
    talks = await _conversations(history, folder)
    keys = [key for key in {**summed_up, **talks} if key != session]
    pairs = {key: [each[key] for each in (talks, summed_up) if key in each] for key in keys}
    topics = {key: _topics(summed_up[key]) for key in keys if key in summed_up}
    found = [
        _Talk(records[0], max(map(_ended, records)), topics.get(key, ()))
        for key, records in pairs.items()
        if key in talks or topics[key]
    ]
    found = sorted(found, key=lambda talk: talk.ended, reverse=True)[:most]
    if history is not None:
        found = await _with_what_was_said(history, found)
    lines = (_line(talk, now) for talk in found)
    return [line for line in lines if line.text]


async def _summed_up(store: "RecordStore | None") -> dict[str, Record]:
    """Sessions that have come to something, by their ids."""
    if store is None:
        return {}
    found = await store.scan(Where(kinds=(SESSION,)), order="newest", limit=MAX_SESSION_RECORDS)
    return {record.id: record for record in found}


async def _conversations(history: "RecordStore | None", folder: Path | None) -> dict[str, Record]:
    """Those that were held in the folder, by the ids of their sessions; not those of agents."""
    if history is None or folder is None:
        return {}
    found: list[Record] = []
    for name in _names(folder):
        where = Where(kinds=(CONVERSATION,), scopes=(name,))
        found += await history.scan(where, order="newest", limit=MAX_SESSION_RECORDS)
    return {record.session or record.id: record for record in found if _is_told_talk(record)}


def _names(folder: Path) -> list[str]:
    """As transcripts may call it."""
    return list(dict.fromkeys((str(folder), str(folder.resolve()))))


def _is_told_talk(record: Record) -> bool:
    facets = record.facets
    has_turns = facets.get("turns") and not facets.get("left_out")
    return bool(record.name and has_turns and not facets.get("part_of"))


def _ended(record: Record) -> int:
    return int(record.facets.get("ended_at") or record.facets.get("ended") or record.at)


def _topics(summed_up: Record) -> tuple[str, ...]:
    named = summed_up.text[:MAX_TITLE_CHARACTERS].partition(TOPICS)[2].split(", ")
    return tuple(topic for topic in named if topic and topic.lower() not in _TELL_NOTHING)


async def _with_what_was_said(history: "RecordStore", talks: Sequence[_Talk]) -> list[_Talk]:
    records = [talk.record for talk in talks if talk.record.kind == CONVERSATION]
    sessions = tuple(record.session for record in records if record.session)
    if not sessions:
        return list(talks)
    places = tuple(place for record in records for place in _ends(record))
    turns = await history.scan(Where(kinds=(TURN,), places=places))
    decisions = Where(kinds=(TURN,), types=(DECISION,), sessions=sessions)
    asked = _by_session(
        turn
        for turn in sorted(turns, key=lambda turn: turn.position or 0)
        if turn.author == "user" and turn.type != SUMMARY
    )
    decided = _by_session(await history.scan(decisions, order="newest", limit=MAX_SESSION_RECORDS))
    return [
        replace(talk, asked=asked.get(key, ()), decided=decided.get(key, ()))
        for talk in talks
        for key in [talk.record.session or ""]
    ]


def _ends(record: Record) -> list[tuple[str, int]]:
    turns = int(record.facets["turns"])
    numbers = {*range(min(FIRST_TURNS, turns)), *range(max(0, turns - LAST_TURNS), turns)}
    return [(record.session, number) for number in sorted(numbers)] if record.session else []


def _by_session(turns: Iterable[Record]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for turn in turns:
        found.setdefault(turn.session or "", []).append(turn.text)
    return found


def _line(talk: _Talk, now: int) -> Entry:
    source = ["session"]
    if talk.record.kind == CONVERSATION:
        source.append(counted(int(talk.record.facets["turns"]), "turn"))
    text = as_data(_told(talk))
    return Entry(talk.record, text, "; ".join([*source, ago(talk.ended, now)]), digest(text))


def _told(talk: _Talk) -> str:
    if talk.record.kind != CONVERSATION:
        return f"Topics: {', '.join(talk.topics)}."
    # Loaded where there is a past to tell of.
    from everkept.hooks.session_recap import decisions_of, prompt_line, says_something

    asked = [prompt_line(text) for text in talk.asked if says_something(text)]
    title = (talk.record.name or "")[:MAX_TITLE_CHARACTERS]
    if "named" in talk.record.facets and not says_something(title):
        title = asked[0] if asked else ""  # it is called by its first words, and they were `hi`
    decided = decisions_of(talk.decided, MOST_DECISIONS)
    last = asked[-1] if asked and not asked[-1].startswith(title.rstrip("….")) else ""
    parts = [
        title,
        f"Decided: {' / '.join(decided)}" if decided else "",
        f"Last prompt: {last}" if last else "",
        f"Topics: {', '.join(talk.topics)}" if talk.topics and not decided else "",
    ]
    return " ".join(part if part[-1] in ".!?…" else f"{part}." for part in parts if part)


COMPACT = "compact"
LOST = ("clear", COMPACT)  # sources after which nothing is left of what was given before

TOLD = 0.5  # importance from which a memory is told
IMPORTANT = 0.7  # from which newer ones do not push it out
MOST_OF_PROJECT, MOST_OF_USER, MOST_TODOS, MOST_PAST = 20, 10, 5, 5
LOOKED_AT = 40  # records a question, of which some may not be meant
LONGEST_TEXT = 2_000  # characters that are read of a memory
PREFERENCES = ("preference", "preferences")  # tags
PREFERS = "prefer"  # in the text, where nobody gave a tag

RECALL = "recall_memories finds more by meaning and words"
RECALL_PAST = "recall_previous_discussions what was said in past conversations"


def session_start(event: HookEvent, around: Around) -> Answer | None:
    """Nothing that the session has already; all again, and what it did, where it lost that."""
    if event.source in LOST:
        around.ledger.reset()
    known = around.run(_known(event, around))
    if known is None:
        return None
    sections = without(known, around.ledger.given())
    budget, more = around.settings.session_token_budget, _more(around.settings)
    told = briefing(sections, budget, more)
    ours = around.ledger.claim(told.ids)
    if len(ours) < len(told.ids):  # another hook of the session has given the rest just now
        others = {e.record.id for entries in sections.values() for e in entries} - ours
        told = briefing(without(sections, others), budget, more)
    return Answer(context=told.text) if told.text else None


def _more(settings: "Settings") -> str:
    """Where more is found, as far as the assistant has the tools for it."""
    offered = chosen_toolsets(settings) if settings.dialect == "everkept" else ()
    named = [RECALL] * ("memories" in offered) + [RECALL_PAST] * ("history" in offered)
    return f"{'; '.join(named)}." if named else ""


async def _known(event: HookEvent, around: Around) -> dict[str, list[Entry]] | None:
    """Candidates for each section, best first; None where the project is switched off."""
    room, now = around.room, around.now
    if room is None:
        return {TODOS: _tasks(event, around), BEFORE: await _before(None, None, event, around)}
    project = await project_of(event.folder, around.settings, room)
    if project is not None and project.is_off:
        return None
    store = None if project is None else await _opened(room, project.name)
    history, user = await past_of(room), await room.user()
    todos = [*await _todos(store, event, now), *await _todos(user, event, now)]
    return {
        BEFORE: await _before(store, history, event, around),
        PROJECT: _entries((await _important(store, "project"))[:MOST_OF_PROJECT], now),
        TODOS: [*todos, *_tasks(event, around)][:MOST_TODOS],
        USER: _entries(_preferences_first(await _important(user, "user"))[:MOST_OF_USER], now),
        PAST: await former_sessions(store, history, event.folder, event.session, now, MOST_PAST),
    }


async def _before(
    store: "RecordStore | None", history: "RecordStore | None", event: HookEvent, around: Around
) -> list[Entry]:
    if event.source != COMPACT:
        return []
    from everkept.hooks.session_recap import own_work

    return await own_work(store, history, event, around)


async def _opened(room: "ReadingRoom", name: str) -> "RecordStore | None":
    try:
        return (await room.open(name))[1]
    except ProjectArchived:
        return None


async def _important(store: "RecordStore | None", scope: str) -> list[Record]:
    """Pinned ones first, then the most important, then the newest."""
    if store is None:
        return []
    found: list[Record] = []
    for where in (
        Where(kinds=(MEMORY,), scopes=(scope,), pinned=True),
        Where(kinds=(MEMORY,), scopes=(scope,), min_importance=IMPORTANT),
        Where(kinds=(MEMORY,), scopes=(scope,), tags=PREFERENCES, min_importance=TOLD),
        Where(kinds=(MEMORY,), scopes=(scope,), min_importance=TOLD),
    ):
        found += await store.scan(where, order="newest", limit=LOOKED_AT)
    meant = [record for record in found if _is_told(record) and not is_todo(record)]
    meant.sort(key=lambda record: -(record.importance or 0.0))
    return ranked(meant)


def _preferences_first(records: Iterable[Record]) -> list[Record]:
    """Among those that are neither important nor pinned."""

    def rank(record: Record) -> int:
        if (record.importance or 0.0) >= IMPORTANT or record.facets.get("pinned"):
            return 0
        is_tagged = any(tag in record.tags for tag in PREFERENCES)
        return 1 if is_tagged or PREFERS in record.text[:LONGEST_TEXT].lower() else 2

    return sorted(records, key=rank)


async def _todos(store: "RecordStore | None", event: HookEvent, now: int) -> list[Entry]:
    found = [] if store is None else await open_todos(store, event.session)
    return _entries(ranked([record for record in found if _is_told(record)]), now)


def _tasks(event: HookEvent, around: Around) -> list[Entry]:
    """Of the memory bank in the folder; one on another machine is too far away."""
    if event.folder is None or around.settings.remote:
        return []
    tasks = open_tasks(event.folder, around.settings.folder)[:MOST_TODOS]
    if tasks and around.settings.mask_secrets:
        from everkept.core.secrets import masked

        # Of a little more than is shown: half a secret looks like none.
        tasks = [masked(task[: 2 * LONGEST_TEXT])[0] for task in tasks]
    return [_task(task, around.now) for task in tasks]


def _task(task: str, now: int) -> Entry:
    text = as_data(task[:LONGEST_TEXT])
    mark = digest(text)
    record = Record(id=f"task:{mark}", kind="task", created_at=now, updated_at=now)
    return Entry(record, text, "memory bank", mark)


def _entries(records: Iterable[Record], now: int) -> list[Entry]:
    entries = (entry_of(record, LONGEST_TEXT, now) for record in records)
    return [entry for entry in entries if entry.text]


def _is_told(record: Record) -> bool:
    """What hooks have stored by themselves is not, unless somebody has pinned it."""
    return is_current(record) and bool(record.facets.get("pinned") or not is_automatic(record))
