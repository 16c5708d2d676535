"""Past sessions of a project and conversations of its folder, a line for each."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.core.data_fence import as_data
from everkept.core.records import Record, Where
from everkept.core.text import counted, digest
from everkept.core.times import ago
from everkept.families.history.model import CONVERSATION, DECISION, SUMMARY, TURN
from everkept.families.memories.filling import Entry
from everkept.families.memories.kinds import SESSION
from everkept.hooks.noticing.tags import EDITED, FAILED, FIXED, WORKED
from everkept.values import Value, replace

if TYPE_CHECKING:
    from everkept.core.ports import RecordStore

LOOKED_AT = 40  # records a question, of which some may not be meant
LONGEST_TEXT = 1_000  # characters that are read of a title
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
    found = await store.scan(Where(kinds=(SESSION,)), order="newest", limit=LOOKED_AT)
    return {record.id: record for record in found}


async def _conversations(history: "RecordStore | None", folder: Path | None) -> dict[str, Record]:
    """Those that were held in the folder, by the ids of their sessions; not those of agents."""
    if history is None or folder is None:
        return {}
    found: list[Record] = []
    for name in _names(folder):
        where = Where(kinds=(CONVERSATION,), scopes=(name,))
        found += await history.scan(where, order="newest", limit=LOOKED_AT)
    return {record.session or record.id: record for record in found if _is_told(record)}


def _names(folder: Path) -> list[str]:
    """As transcripts may call it."""
    return list(dict.fromkeys((str(folder), str(folder.resolve()))))


def _is_told(record: Record) -> bool:
    facets = record.facets
    has_turns = facets.get("turns") and not facets.get("left_out")
    return bool(record.name and has_turns and not facets.get("part_of"))


def _ended(record: Record) -> int:
    return int(record.facets.get("ended_at") or record.facets.get("ended") or record.at)


def _topics(summed_up: Record) -> tuple[str, ...]:
    named = summed_up.text[:LONGEST_TEXT].partition(TOPICS)[2].split(", ")
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
    decided = _by_session(await history.scan(decisions, order="newest", limit=LOOKED_AT))
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
    from everkept.hooks.starting.gist import decisions_of, prompt_line, says_something

    asked = [prompt_line(text) for text in talk.asked if says_something(text)]
    title = (talk.record.name or "")[:LONGEST_TEXT]
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
