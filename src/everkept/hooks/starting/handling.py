"""SessionStart: what a session should know before anybody has asked for it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from everkept.core.data_fence import as_data
from everkept.core.records import Record, Where
from everkept.core.text import digest
from everkept.errors import ProjectArchived
from everkept.families.memories.context import entry_of, is_current, ranked
from everkept.families.memories.filling import Entry
from everkept.families.memories.kinds import MEMORY
from everkept.hooks.model import Answer, Around, HookEvent
from everkept.hooks.noticing.tags import is_automatic
from everkept.hooks.past import past_of
from everkept.hooks.places import project_of
from everkept.hooks.starting.bank_tasks import open_tasks
from everkept.hooks.starting.briefing import BEFORE, PAST, PROJECT, TODOS, USER, briefing, without
from everkept.hooks.starting.former_sessions import former_sessions
from everkept.hooks.todos import is_todo, open_todos
from everkept.settings import chosen_toolsets

if TYPE_CHECKING:
    from everkept.core.ports import ReadingRoom, RecordStore
    from everkept.settings import Settings

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
    from everkept.hooks.starting.own_work import own_work

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
