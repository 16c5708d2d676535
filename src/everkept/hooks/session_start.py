"""Handler of SessionStart, which gives a session context before the first prompt, within a token budget."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.core import disk
from everkept.core.context_text import as_data, count_tokens
from everkept.core.folder_project import find_folder_project, format_lost
from everkept.core.projects import find_checkout, find_workspace_root
from everkept.core.records import Record, RecordFilter
from everkept.core.text import compute_digest, format_count
from everkept.core.times import format_ago
from everkept.errors import ProjectArchived
from everkept.families.history.model import CONVERSATION, DECISION, SUMMARY, TURN
from everkept.families.memories.context import (
    ContextEntry,
    ContextFiller,
    build_entry,
    fence_memories,
    is_current,
    rank_records,
)
from everkept.families.memories.memory_identity import MEMORY, SESSION
from everkept.hooks.events import HookAnswer, HookContext, HookEvent
from everkept.hooks.tool_use import is_automatic
from everkept.hooks.workspace import (
    EDITED_TAG,
    FAILED_TAG,
    FIXED_TAG,
    WORKED_TAG,
    find_project,
    get_hooks_folder,
    is_todo,
    open_history,
    read_open_todos,
)
from everkept.settings import AUTO, choose_toolsets, read_client_environment
from everkept.values import Value, replace

if TYPE_CHECKING:
    from everkept.core.ports import ReadOnlyLibrary, RecordStore
    from everkept.settings import Settings

MAX_BRIEFING_CHARACTERS = 7_500  # clients move a text of more than 8,000 to a file
TITLE = "## Memory of earlier work\nFrom Everkept, on this machine."

BEFORE_COMPACTION = "before"
PROJECT = "project"
TODOS = "todos"
USER = "user"
PAST = "past"
HEADINGS: Mapping[str, str] = {  # the first section with entries may take half of the budget
    BEFORE_COMPACTION: "### Earlier in This Session",
    PROJECT: "### Project Knowledge",
    TODOS: "### Open Todos",
    USER: "### User Preferences",
    PAST: "### Recent Sessions",
}

Sections = Mapping[str, Sequence[ContextEntry]]


class Briefing(Value):
    """Context for a session. `ids` are those of the records in the text; the text is empty without any."""

    text: str
    ids: tuple[str, ...]


def build_briefing(sections: Sections, budget: int, more: str) -> Briefing:
    """Build a text within the token budget and the client's limit. `more` says how to get more."""
    entries = {name: list(sections.get(name, ())) for name in HEADINGS if sections.get(name)}
    room = budget - count_tokens(_fence_body("\n", more))
    while entries and room > 0:
        filling = ContextFiller(entries, HEADINGS, room)
        body = filling.format_sections()
        text = _fence_body(body, more) if body else ""
        if len(text) <= MAX_BRIEFING_CHARACTERS:
            return Briefing(text, tuple(record.id for record in filling.used_records))
        room = room * MAX_BRIEFING_CHARACTERS // len(text) - 1
    return Briefing("", ())


def exclude_ids(sections: Sections, ids: set[str]) -> dict[str, list[ContextEntry]]:
    """Return the sections without the entries that the session already has."""
    return {name: [entry for entry in entries if entry.record.id not in ids] for name, entries in sections.items()}


def _fence_body(body: str, more: str) -> str:
    return "\n".join(part for part in (TITLE, fence_memories(body), more) if part)


FIRST_SESSION_FILE = "first-session.txt"  # in the folder of the hooks, once the machine was searched
MAX_ASKED_BYTES = 1_000_000
MAX_TASK_BYTES = 200_000  # of a longer task list only the beginning is read
_PLACEHOLDER = re.compile(r"\[[^\]]*\]")  # template item that was not filled in


def read_open_tasks(place: Path) -> list[str]:
    """Return the open tasks of a memory bank in order. Return none without a readable file."""
    from everkept.families.bank.model import ACTIVE, LEGACY_NAMES

    texts = (_read_text(place / name, place) for name in (ACTIVE, LEGACY_NAMES[ACTIVE]))
    text = next(filter(None, texts), "")
    if not text:
        return []
    from everkept.families.bank.markdown_sections import TASK_TITLES, list_titled_items, parse_box, strip_box

    items = [strip_box(item) for item in list_titled_items(text, TASK_TITLES) if parse_box(item) is not True]
    return [item for item in items if not _PLACEHOLDER.fullmatch(item.strip())]


ASKED_FILE = "asked-banks.txt"  # in the folder of the hooks: the banks that the user was asked about
TASK_ORIGIN = "from a file in this repository"


def is_used_bank(place: Path, folder: Path, data_dir: Path) -> bool:
    """Return whether this user has used or trusted the bank, here or in the main checkout of this worktree."""
    from everkept.families.bank.model import VERSIONS_FOLDER, name_versions_folder

    places = [place]
    checkout, main = find_checkout(folder), find_workspace_root(folder)
    if checkout is not None and main is not None and place.is_relative_to(checkout):
        places.append(main / place.relative_to(checkout))
    return any((data_dir / VERSIONS_FOLDER / name_versions_folder(str(each))).is_dir() for each in places)


def _ask_for_trust(place: Path, hooks: Path) -> str:
    """Return the notice about a bank that this user has not used, once for each bank."""
    file, mark = hooks / ASKED_FILE, compute_digest(str(place))
    try:
        if not hooks.parent.is_dir() or (file.exists() and mark in disk.read_limited(file, MAX_ASKED_BYTES).decode()):
            return ""
        disk.append_lines(file, [mark])
    except (OSError, ValueError):
        return ""
    shown = as_data(str(place))
    return (
        f"Everkept omits the open tasks in {shown}: you have not used it yet. To add them, run `everkept bank trust`."
    )


def find_bank(folder: Path, name: str) -> Path | None:
    """Return the bank of the folder, otherwise of its repository. Ignore a bank that is a link to another folder."""
    try:
        for home in (folder.resolve(), find_checkout(folder)):
            if home is not None and (home / name).is_dir():
                place = (home / name).resolve()
                return place if place.is_relative_to(home.resolve()) else None
    except (OSError, RuntimeError):  # RuntimeError: a circle of links
        return None
    return None


def _read_text(file: Path, place: Path) -> str:
    try:
        if not file.is_file() or not file.resolve().is_relative_to(place):
            return ""
        with file.open("rb") as opened:
            return opened.read(MAX_TASK_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


MAX_SESSION_RECORDS = 40  # per query; some of them are filtered out later
MAX_TITLE_CHARACTERS = 1_000
FIRST_TURNS, LAST_TURNS = 6, 12  # of a conversation, for the first and the last prompts
MAX_DECISIONS = 3  # of a conversation
TOPICS_PREFIX = "Key topics: "  # prefix of the topics in the summary of a session
_HOOK_TAGS = frozenset({EDITED_TAG, FAILED_TAG, FIXED_TAG, WORKED_TAG})


class _PastSession(Value):
    """Facts about one past session, from its conversation, its summary or both."""

    record: Record
    ended: int
    topics: tuple[str, ...] = ()
    asked: Sequence[str] = ()  # in order
    decided: Sequence[str] = ()  # texts of turns


async def read_past_sessions(
    store: "RecordStore | None", history: "RecordStore | None", folder: Path | None, session: str, now: int, most: int
) -> list[ContextEntry]:
    """Return entries for past sessions, newest first, without the current session.

    An entry gives the title, decisions and last prompt, otherwise the topics of its memories.
    """
    summed_up = await _read_summaries(store)
    talks = await _read_conversations(history, folder)
    keys = [key for key in {**summed_up, **talks} if key != session]
    pairs = {key: [each[key] for each in (talks, summed_up) if key in each] for key in keys}
    topics = {key: _extract_topics(summed_up[key]) for key in keys if key in summed_up}
    found = [
        _PastSession(records[0], max(map(_get_end_time, records)), topics.get(key, ()))
        for key, records in pairs.items()
        if key in talks or topics[key]
    ]
    found = sorted(found, key=lambda talk: talk.ended, reverse=True)[:most]
    if history is not None:
        found = await _with_turns(history, found)
    lines = (_build_session_entry(talk, now) for talk in found)
    return [line for line in lines if line.text]


async def _read_summaries(store: "RecordStore | None") -> dict[str, Record]:
    """Return the sessions with a summary, by id."""
    if store is None:
        return {}
    found = await store.scan(RecordFilter(kinds=(SESSION,)), order="newest", limit=MAX_SESSION_RECORDS)
    return {record.id: record for record in found}


async def _read_conversations(history: "RecordStore | None", folder: Path | None) -> dict[str, Record]:
    """Return the conversations held in the folder, by session id, without those of agents."""
    if history is None or folder is None:
        return {}
    found: list[Record] = []
    for name in _list_folder_names(folder):
        where = RecordFilter(kinds=(CONVERSATION,), scopes=(name,))
        found += await history.scan(where, order="newest", limit=MAX_SESSION_RECORDS)
    return {record.session or record.id: record for record in found if _is_relevant_conversation(record)}


def _list_folder_names(folder: Path) -> list[str]:
    """Return the paths that transcripts may give for the folder."""
    return list(dict.fromkeys((str(folder), str(folder.resolve()))))


def _is_relevant_conversation(record: Record) -> bool:
    facets = record.facets
    has_turns = facets.get("turns") and not facets.get("left_out")
    return bool(record.name and has_turns and not facets.get("part_of"))


def _get_end_time(record: Record) -> int:
    return int(record.facets.get("ended_at") or record.facets.get("ended") or record.effective_at)


def _extract_topics(summed_up: Record) -> tuple[str, ...]:
    named = summed_up.text[:MAX_TITLE_CHARACTERS].partition(TOPICS_PREFIX)[2].split(", ")
    return tuple(topic for topic in named if topic and topic.lower() not in _HOOK_TAGS)


async def _with_turns(history: "RecordStore", talks: Sequence[_PastSession]) -> list[_PastSession]:
    records = [talk.record for talk in talks if talk.record.kind == CONVERSATION]
    sessions = tuple(record.session for record in records if record.session)
    if not sessions:
        return list(talks)
    places = tuple(place for record in records for place in _list_end_positions(record))
    turns = await history.scan(RecordFilter(kinds=(TURN,), places=places))
    decisions = RecordFilter(kinds=(TURN,), types=(DECISION,), sessions=sessions)
    asked = _group_by_session(
        turn
        for turn in sorted(turns, key=lambda turn: turn.position or 0)
        if turn.author == "user" and turn.type != SUMMARY
    )
    decided = _group_by_session(await history.scan(decisions, order="newest", limit=MAX_SESSION_RECORDS))
    return [
        replace(talk, asked=asked.get(key, ()), decided=decided.get(key, ()))
        for talk in talks
        for key in [talk.record.session or ""]
    ]


def _list_end_positions(record: Record) -> list[tuple[str, int]]:
    turns = int(record.facets["turns"])
    numbers = {*range(min(FIRST_TURNS, turns)), *range(max(0, turns - LAST_TURNS), turns)}
    return [(record.session, number) for number in sorted(numbers)] if record.session else []


def _group_by_session(turns: Iterable[Record]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for turn in turns:
        found.setdefault(turn.session or "", []).append(turn.text)
    return found


def _build_session_entry(talk: _PastSession, now: int) -> ContextEntry:
    source = ["session"]
    if talk.record.kind == CONVERSATION:
        source.append(format_count(int(talk.record.facets["turns"]), "turn"))
    text = as_data(_describe_session(talk))
    return ContextEntry(talk.record, text, "; ".join([*source, format_ago(talk.ended, now)]), compute_digest(text))


def _describe_session(talk: _PastSession) -> str:
    if talk.record.kind != CONVERSATION:
        return f"Topics: {', '.join(talk.topics)}."
    # Imported only if there is a past session to describe.
    from everkept.hooks.session_recap import collect_decisions, format_prompt, is_meaningful

    asked = [format_prompt(text) for text in talk.asked if is_meaningful(text)]
    title = (talk.record.name or "")[:MAX_TITLE_CHARACTERS]
    if "named" in talk.record.facets and not is_meaningful(title):
        title = asked[0] if asked else ""  # the title is the first words of the conversation, and these say nothing
    decided = collect_decisions(talk.decided, MAX_DECISIONS)
    last = asked[-1] if asked and not asked[-1].startswith(title.rstrip("….")) else ""
    parts = [
        title,
        f"Decided: {' / '.join(decided)}" if decided else "",
        f"Last prompt: {last}" if last else "",
        f"Topics: {', '.join(talk.topics)}" if talk.topics and not decided else "",
    ]
    return " ".join(part if part[-1] in ".!?…" else f"{part}." for part in parts if part)


COMPACT_SOURCE = "compact"
# After these sources the session has lost all earlier context.
CONTEXT_LOST_SOURCES = "clear", COMPACT_SOURCE

MIN_IMPORTANCE = 0.5  # minimum importance of a memory in the briefing
HIGH_IMPORTANCE = 0.7  # newer memories do not displace memories of this importance
MAX_PROJECT_MEMORIES, MAX_USER_MEMORIES, MAX_TODOS, MAX_PAST_SESSIONS = 20, 10, 5, 5
MAX_SCANNED_RECORDS = 40  # per query; some of them are filtered out later
MAX_TEXT_CHARACTERS = 2_000  # read of each memory
PREFERENCE_TAGS = ("preference", "preferences")
PREFERENCE_WORD = "prefer"  # in the text of a memory without a tag

RECALL_HINT = "For more, call recall_memories (search by meaning and words)."
RECALL_PAST_HINT = "For past conversations, call recall_previous_discussions."


def handle_session_start(event: HookEvent, around: HookContext) -> HookAnswer | None:
    """Give the session what it does not have yet. If it lost its context, give everything again, with a recap."""
    if event.source in CONTEXT_LOST_SOURCES:
        around.ledger.reset()
    known = around.run(_read_candidates(event, around))
    if known is None:
        return None
    sections = exclude_ids(known, around.ledger.read_given())
    budget, more = around.settings.session_token_budget, _format_more(around.settings)
    told = build_briefing(sections, budget, more)
    ours = around.ledger.claim(told.ids)
    if len(ours) < len(told.ids):  # another hook of the session has just given the rest
        others = {e.record.id for entries in sections.values() for e in entries} - ours
        told = build_briefing(exclude_ids(sections, others), budget, more)
    notices = (find(event, around) for find in (_find_lost_notice, _find_notice, _find_import_notice))
    notice = " ".join(filter(None, notices))
    return HookAnswer(context=told.text, notice=notice) if told.text or notice else None


def _find_lost_notice(event: HookEvent, around: HookContext) -> str:
    """Return the warning about a project, chosen for the folder, that no longer exists."""
    if around.room is None or around.settings.project not in (None, AUTO):
        return ""
    found = around.run(find_folder_project(around.room, event.folder))
    return format_lost(found) if found.lost else ""


def _find_import_notice(event: HookEvent, around: HookContext) -> str:
    marker = get_hooks_folder(around.settings) / FIRST_SESSION_FILE
    if around.settings.read_only or marker.exists() or not _has_transcripts():
        return ""
    try:
        disk.make_folder(marker.parent)
        disk.create(marker, is_synced=False)
    except OSError:  # another session is the first one
        return ""
    from everkept.app.build import build_transcripts  # once on a machine
    from everkept.app.unread_transcripts import find_unread

    own = "" if event.transcript is None else event.transcript.name
    history = None if around.room is None else around.run(open_history(around.room))
    found = [each for each in build_transcripts(()).find_transcripts() if Path(each.name).name != own]
    unread = around.run(find_unread(found, history))
    if not unread.total:
        return ""
    return (
        f"Everkept found {unread.describe()} on this machine. "
        f"To make them searchable ({unread.format_duration()}), run `everkept import history`."
    )


def _has_transcripts() -> bool:
    """Return whether a program has a folder with conversations."""
    environment = read_client_environment()
    home = environment.get("HOME") or environment.get("USERPROFILE") or ""
    homes = [Path(home, name) for name in (".claude", ".codex", ".gemini", ".cursor")] if home else []
    homes += [Path(environment[name]) for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME") if name in environment]
    places = [each / name for each in homes for name in ("projects", "sessions", "tmp")]
    try:
        return any(place.is_dir() and any(place.iterdir()) for place in places)
    except OSError:
        return False


def _find_notice(event: HookEvent, around: HookContext) -> str:
    settings = around.settings
    if event.folder is None or settings.remote or settings.read_only:
        return ""
    place = find_bank(event.folder, settings.folder)
    if place is None or is_used_bank(place, event.folder, settings.data_dir) or not read_open_tasks(place):
        return ""
    return _ask_for_trust(place, get_hooks_folder(settings))


def _format_more(settings: "Settings") -> str:
    """Name the tools that find more, if the assistant has them."""
    offered = choose_toolsets(settings) if settings.dialect == "everkept" else ()
    return " ".join([RECALL_HINT] * ("memories" in offered) + [RECALL_PAST_HINT] * ("history" in offered))


async def _read_candidates(event: HookEvent, around: HookContext) -> dict[str, list[ContextEntry]] | None:
    """Return the candidates for each section, best first. Return None if the project is off."""
    room, now = around.room, around.now
    if room is None:
        return {
            TODOS: _read_tasks(event, around),
            BEFORE_COMPACTION: await _recap_before_compaction(None, None, event, around),
        }
    project = await find_project(event.folder, around.settings, room)
    if project is not None and project.is_off:
        return None
    store = None if project is None else await _open_project(room, project.name)
    history, user = await open_history(room), await room.open_user_store()
    todos = [*await _read_todos(store, event, now), *await _read_todos(user, event, now)]
    return {
        BEFORE_COMPACTION: await _recap_before_compaction(store, history, event, around),
        PROJECT: _build_entries((await _read_important(store, "project"))[:MAX_PROJECT_MEMORIES], now),
        TODOS: [*todos, *_read_tasks(event, around)][:MAX_TODOS],
        USER: _build_entries(_sort_preferences_first(await _read_important(user, "user"))[:MAX_USER_MEMORIES], now),
        PAST: await read_past_sessions(store, history, event.folder, event.session, now, MAX_PAST_SESSIONS),
    }


async def _recap_before_compaction(
    store: "RecordStore | None", history: "RecordStore | None", event: HookEvent, around: HookContext
) -> list[ContextEntry]:
    if event.source != COMPACT_SOURCE:
        return []
    from everkept.hooks.session_recap import recap_session

    return await recap_session(store, history, event, around)


async def _open_project(room: "ReadOnlyLibrary", name: str) -> "RecordStore | None":
    try:
        return (await room.open(name))[1]
    except ProjectArchived:
        return None


async def _read_important(store: "RecordStore | None", scope: str) -> list[Record]:
    """Return the pinned memories first, then the most important, then the newest."""
    if store is None:
        return []
    found: list[Record] = []
    for where in (
        RecordFilter(kinds=(MEMORY,), scopes=(scope,), pinned=True),
        RecordFilter(kinds=(MEMORY,), scopes=(scope,), min_importance=HIGH_IMPORTANCE),
        RecordFilter(kinds=(MEMORY,), scopes=(scope,), tags=PREFERENCE_TAGS, min_importance=MIN_IMPORTANCE),
        RecordFilter(kinds=(MEMORY,), scopes=(scope,), min_importance=MIN_IMPORTANCE),
    ):
        found += await store.scan(where, order="newest", limit=MAX_SCANNED_RECORDS)
    meant = [record for record in found if _is_relevant(record) and not is_todo(record)]
    meant.sort(key=lambda record: -(record.importance or 0.0))
    return rank_records(meant)


def _sort_preferences_first(records: Iterable[Record]) -> list[Record]:
    """Move preferences to the front of the memories that are neither important nor pinned."""

    def rank(record: Record) -> int:
        if (record.importance or 0.0) >= HIGH_IMPORTANCE or record.facets.get("pinned"):
            return 0
        is_tagged = any(tag in record.tags for tag in PREFERENCE_TAGS)
        return 1 if is_tagged or PREFERENCE_WORD in record.text[:MAX_TEXT_CHARACTERS].lower() else 2

    return sorted(records, key=rank)


async def _read_todos(store: "RecordStore | None", event: HookEvent, now: int) -> list[ContextEntry]:
    found = [] if store is None else await read_open_todos(store, event.session)
    return _build_entries(rank_records([record for record in found if _is_relevant(record)]), now)


def _read_tasks(event: HookEvent, around: HookContext) -> list[ContextEntry]:
    """Return the open tasks of the memory bank in the folder. A bank on another machine takes too long to read."""
    if event.folder is None or around.settings.remote:
        return []
    place = find_bank(event.folder, around.settings.folder)
    if place is None or not is_used_bank(place, event.folder, around.settings.data_dir):
        return []
    tasks = read_open_tasks(place)[:MAX_TODOS]
    if tasks and around.settings.mask_secrets:
        from everkept.core.secrets import mask_text

        # Mask more text than is shown, because a cut secret is not recognized.
        tasks = [mask_text(task[: 2 * MAX_TEXT_CHARACTERS])[0] for task in tasks]
    return [_build_task_entry(task, around.now) for task in tasks]


def _build_task_entry(task: str, now: int) -> ContextEntry:
    text = as_data(task[:MAX_TEXT_CHARACTERS])
    mark = compute_digest(text)
    record = Record(id=f"task:{mark}", kind="task", created_at=now, updated_at=now)
    return ContextEntry(record, text, TASK_ORIGIN, mark)


def _build_entries(records: Iterable[Record], now: int) -> list[ContextEntry]:
    entries = (build_entry(record, MAX_TEXT_CHARACTERS, now) for record in records)
    return [entry for entry in entries if entry.text]


def _is_relevant(record: Record) -> bool:
    """Return whether a memory is current and not automatic. A pinned automatic memory is relevant too."""
    return is_current(record) and bool(record.facets.get("pinned") or not is_automatic(record))
