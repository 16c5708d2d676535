"""A quick look into the past: few words, one question to each store, and the best few records."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from everkept.core.paths import Parts, loose_parts, starts_with
from everkept.core.records import Record, Weights, Where
from everkept.core.workspaces import checkout_of, workspace_of
from everkept.errors import ProjectArchived
from everkept.families.history.model import CODE, TURN
from everkept.hooks.prompt_evidence import MEMORY, USER, Asked, Find, Judging, Shelf, said_once
from everkept.hooks.workspace import past_of, project_of
from everkept.language.rarity import Rarity
from everkept.language.telling_words import Word
from everkept.language.words import AllOf, AnyOf, Phrase, WordQuery
from everkept.values import replace

if TYPE_CHECKING:
    from everkept.core.ports import ReadingRoom, RecordStore
    from everkept.hooks.events import HookEvent
    from everkept.settings import Settings

MOST_ROWS = 3_000  # of the word index that all words of a question have together
MOST_ASKED = 8  # words
MOST_MATCHED = 32
MOST_COMPARED = 12
WEIGHTS = Weights(context=0.5)  # as families weigh what was said just before and after


class Found(NamedTuple):
    """The best first. `known` are the words that any of this project's records has."""

    finds: tuple[Find, ...] = ()
    known: tuple[Word, ...] = ()
    overlap: float = 0.0

    @property
    def likeness(self) -> float:
        return max((find.likeness for find in self.finds), default=0.0)

    @property
    def error_likeness(self) -> float:
        return max((find.error_likeness for find in self.finds), default=0.0)


async def look(
    room: "ReadingRoom", event: "HookEvent", settings: "Settings", asked: Asked
) -> Found:
    """What this project's conversations and the memories that this session may see have of it."""
    shelves = await _shelves(room, event, settings)
    words = asked.every_word
    shares = {shelf: await _shares(store, words) for shelf, store in shelves.items()}
    rarity = Rarity(
        {word: max((share[word] for share in shares.values()), default=0.0) for word in words}
    )
    judging = Judging(event.session, asked, rarity)
    finds: list[Find] = []
    for shelf, store in shelves.items():
        query = await _query(store, shares[shelf])
        if shelf == "history":
            scopes = Folders.around(event.folder).among(await store.scopes(TURN))
            finds += await _said(store, query, scopes, judging, is_alone=not finds)
        else:
            where = Where(kinds=(MEMORY,), visible_to=event.session)
            finds += await _finds(store, shelf, query, where, judging)
    known = {word for find in finds if not find.is_elsewhere for word in find.words}
    return Found(
        said_once(sorted(finds, key=_worth)),
        tuple(word for word in asked.words if word in known),
        rarity.likeness(judging.asked.words, judging.said),
    )


def _worth(find: Find) -> tuple[float, int]:
    return -max(find.likeness, find.error_likeness), -find.record.at


async def _shelves(
    room: "ReadingRoom", event: "HookEvent", settings: "Settings"
) -> "dict[Shelf, RecordStore]":
    """Memories first: what they say, no conversation has to."""
    shelves: dict[Shelf, RecordStore] = {}
    project = await project_of(event.folder, settings, room)
    if project is not None:
        with suppress(ProjectArchived):
            _, shelves["project"] = await room.open(project.name)
    if (user := await room.user()) is not None:
        shelves["user"] = user
    if (history := await past_of(room)) is not None:
        shelves["history"] = history
    return shelves


async def _shares(store: "RecordStore", words: Sequence[Word]) -> dict[Word, float]:
    """The share of records that have each word, or all parts of it."""
    spelled = {spelling for word in words for spelling in (word.text, *word.parts)}
    found = await store.frequencies(sorted(spelled))
    return {
        word: found[word.text] or min((found[part] for part in word.parts), default=0.0)
        for word in words
    }


async def _query(store: "RecordStore", shares: Mapping[Word, float]) -> WordQuery | None:
    """Any of the rarest words, as many as are ranked quickly; all of them where even the rarest is
    too common for that. None where nobody has used any, or too many have used all."""
    known = sorted((share, word) for word, share in shares.items() if share > 0)[:MOST_ASKED]
    if not known:
        return None
    rows = await store.how_many(Where())
    chosen: list[WordQuery] = []
    left = float(MOST_ROWS)
    for share, word in known:
        left -= share * rows
        if left < 0:
            break
        chosen.append(_asked_for(word))
    if chosen:
        return AnyOf(tuple(chosen))
    together = rows * prod(share for share, _ in known)  # if each were where it is by chance
    return AllOf(tuple(_asked_for(word) for _, word in known)) if together < MOST_ROWS else None


def _asked_for(word: Word) -> WordQuery:
    whole = Phrase((word.text,))
    return AnyOf((whole, AllOf(tuple(Phrase((p,)) for p in word.parts)))) if word.parts else whole


async def _said(
    store: "RecordStore",
    query: WordQuery | None,
    scopes: tuple[str, ...],
    judging: Judging,
    *,
    is_alone: bool,
) -> list[Find]:
    """In this project's conversations; in those of all where it has nothing, and nothing else was
    found either, if they are asked for in words that are not everywhere."""
    where = Where(kinds=judging.asked.kinds)
    if scopes:
        own = await _finds(store, "history", query, replace(where, scopes=scopes), judging)
        if own:
            return own
    asked = judging.asked
    if not (is_alone and asked.everywhere and judging.rarity.has_rare(asked.words)):
        return []
    found = await _finds(store, "history", query, where, judging)
    return [find._replace(is_elsewhere=True) for find in found]


async def _finds(
    store: "RecordStore", shelf: Shelf, query: WordQuery | None, where: Where, judging: Judging
) -> list[Find]:
    if query is None:
        return []
    matched = await store.match(query, where, WEIGHTS, MOST_MATCHED)
    records = await store.get([match.id for match in matched])
    others = [record for record in records if judging.may_be_told(record)][:MOST_COMPARED]
    answers = await _answers(store, others)
    titles = await _titles(store, others)
    found: dict[str, Find] = {}
    for record in others:
        find = judging.find(record, answers.get(record.id), titles.get(record.id, ""), shelf)
        known = found.get(find.record.id) if find else None
        if find and (known is None or known.likeness < find.likeness):
            found[find.record.id] = find
    return [find for find in found.values() if not _is_shown_by(find, found)]


def _is_shown_by(find: Find, others: Mapping[str, Find]) -> bool:
    """Whether it is code that stands in the text of a turn which was found too."""
    turn = others.get(find.record.parent or "") if find.record.kind == CODE else None
    return turn is not None and find.record.text.strip() in turn.record.text


async def _titles(store: "RecordStore", records: Sequence[Record]) -> dict[str, str]:
    """What the conversation of each of these is called; that of code is its turn's."""
    parents = [record.parent for record in records if record.parent]
    above = {record.id: record for record in await store.get(parents)} if parents else {}
    beyond = [each.parent for each in above.values() if each.kind == TURN and each.parent]
    above |= {record.id: record for record in await store.get(beyond)} if beyond else {}
    titles: dict[str, str] = {}
    for record in records:
        owner = above.get(record.parent or "")
        if owner is not None and owner.kind == TURN:
            owner = above.get(owner.parent or "")
        titles[record.id] = owner.name or "" if owner is not None else ""
    return titles


async def _answers(store: "RecordStore", records: Sequence[Record]) -> dict[str, Record]:
    """What was said right after each of the user's turns among these, by the turn's id."""
    asking = {
        (record.session, record.position + 1): record.id
        for record in records
        if record.kind == TURN
        and record.author == USER
        and record.session is not None
        and record.position is not None
    }
    if not asking:
        return {}
    found = await store.scan(Where(kinds=(TURN,), places=tuple(asking)))
    return {
        asking[turn.session, turn.position]: turn
        for turn in found
        if turn.author != USER and turn.session is not None and turn.position is not None
    }


class Folders(NamedTuple):
    """The folders of a project, each as its parts; `alone` where what lies below is no part."""

    roots: tuple[Parts, ...]
    alone: bool = False

    @classmethod
    def around(cls, folder: Path | None) -> "Folders":
        """The repository of a folder, with its main checkout; the home folder only by itself."""
        if folder is None:
            return cls(())
        workspace = workspace_of(folder)
        if workspace is None:
            return cls((loose_parts(str(folder)), loose_parts(str(folder.resolve()))), alone=True)
        # A conversation names its folder as it was typed, symbolic links and all.
        typed = next((p for p in (folder, *folder.parents) if (p / ".git").exists()), folder)
        places = (workspace, checkout_of(folder) or workspace, typed)
        return cls(tuple(dict.fromkeys(loose_parts(str(place)) for place in places)))

    def among(self, scopes: Iterable[str]) -> tuple[str, ...]:
        """The folders of conversations that belong to the project."""
        return tuple(dict.fromkeys(scope for scope in scopes if self._holds(loose_parts(scope))))

    def _holds(self, parts: Parts) -> bool:
        if self.alone:
            return bool(parts) and parts in self.roots
        return any(starts_with(parts, root) for root in self.roots)
