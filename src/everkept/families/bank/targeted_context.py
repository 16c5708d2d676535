"""The tool that answers a question from the graph and the files, inside a token budget."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from everkept.core.sessions import Call
from everkept.core.text import clipped, normalised
from everkept.core.times import Clock
from everkept.errors import EverkeptError, InvalidInput, Refused
from everkept.families.bank.banks import Bank, BankRecords, Banks, checked_name, written_name
from everkept.families.bank.core_files import Digest, digest_of
from everkept.families.bank.graph.mirror import Mirror
from everkept.families.bank.graph.model import EntityView, FoundEntity, OpenedNodes
from everkept.families.bank.graph.queries import GraphReading
from everkept.families.bank.graph.tools import GraphCalls
from everkept.families.bank.markdown_sections import lines_of, sections
from everkept.families.bank.model import CORE_FILES, StoreId
from everkept.families.bank.section_records import as_shown, searched_files
from everkept.families.bank.section_search import BankSections
from everkept.tools.schema import Field, to_json
from everkept.tools.tool import Family, Warned, tool
from everkept.values import Value, replace

PATHS = ("docPath", "path")  # attributes of an entity that name a file
HEADINGS = ("heading", "section", "anchor")  # and a heading in it
AROUND = 3  # lines before and after a match
FIRST_LINES = 60  # of a file in which nothing matches
EXACT, PREFIX, WORD, INSIDE = 100.0, 80.0, 60.0, 40.0  # what a hit in a name counts
SHARES = {"name": 1.0, "type": 0.8, "attrs": 0.6}

_POINTER = re.compile(
    r"DOC:\s*(?P<path>\S.*?\.(?:md|json))(?:\s+#\s+(?P<heading>.+?))?(?:\s+-\s.*)?$"
)
_WORDS = re.compile(r"\w{3,}")


class GraphHit(Value):
    id: str
    name: str
    entity_type: Annotated[str, Field(name="entityType")]
    score: float
    matched_in: Annotated[list[str], Field(name="matchedIn")]


class Pointer(Value):
    """A place in a file, and why it is meant."""

    path: str
    heading_hint: Annotated[str | None, Field(name="headingHint")]
    reason: str
    entity_id: Annotated[str | None, Field(name="entityId")] = None


def hit_of(entity: FoundEntity, query: str) -> GraphHit:
    """How literally the query, else some of its words, stands in what is known of an entity."""
    phrase = normalised(query)
    words = set(_WORDS.findall(phrase))
    fields = {
        "name": normalised(entity.name),
        "type": normalised(entity.entity_type),
        "attrs": normalised(" ".join(map(str, (entity.attrs or {}).values()))),
    }
    scores = {name: SHARES[name] * _score(text, phrase, words) for name, text in fields.items()}
    matched = [name for name, score in scores.items() if score]
    best = round(max(scores.values()), 2)
    return GraphHit(entity.id, entity.name, entity.entity_type, best, matched)


def _score(text: str, phrase: str, words: set[str]) -> float:
    if phrase in text:
        if text.startswith(phrase):
            return EXACT if text == phrase else PREFIX
        return WORD if re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text) else INSIDE
    return INSIDE * len(words & set(_WORDS.findall(text))) / len(words) if words else 0.0


def pointers_in(
    opened: OpenedNodes, scores: Mapping[str, float], *, core_first: bool
) -> list[Pointer]:
    """What attributes and observations point at: the best entities first, then with a heading."""
    found: dict[tuple[str, str | None], Pointer] = {}
    for pointer in [*_in_attributes(opened.entities), *_in_observations(opened)]:
        if _is_name(pointer.path):
            found.setdefault((pointer.path, pointer.heading_hint), pointer)

    def place(pointer: Pointer) -> tuple[float, bool, bool, str]:
        score = scores.get(pointer.entity_id or "", 0.0)
        is_core = core_first and pointer.path in CORE_FILES
        return -score, pointer.heading_hint is None, not is_core, pointer.path

    return sorted(found.values(), key=place)


def _in_attributes(entities: Iterable[EntityView]) -> Iterable[Pointer]:
    for entity in entities:
        attrs = entity.attrs or {}
        path = _first(attrs, PATHS)
        if path:
            reason = f"attributes of {entity.name}"
            yield Pointer(path, _first(attrs, HEADINGS), reason, entity.id)


def _in_observations(opened: OpenedNodes) -> Iterable[Pointer]:
    names = {entity.id: entity.name for entity in opened.entities}
    for observation in opened.observations:
        if found := _POINTER.match(observation.text):
            owner = observation.entity_id
            reason = f"observation of {names.get(owner, owner)}"
            yield Pointer(found["path"], found["heading"], reason, owner)


def _first(attrs: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    return next((v for key in keys if isinstance(v := attrs.get(key), str) and v.strip()), None)


def _is_name(path: str) -> bool:
    try:
        return bool(checked_name(path))
    except Refused:
        return False


def passage(text: str, heading: str | None, query: str) -> tuple[str, str]:
    """What to quote of a file, and why: the section, what is around matches, or the beginning."""
    lines = lines_of(text)
    wanted = normalised(heading or "").lstrip("#").strip()
    if wanted:
        for section in sections(text):
            if wanted in normalised(section.title):
                quoted = "".join(lines[section.heading : section.end])
                return quoted, f"section {section.title}"
    matching = _matching(lines, query)
    if matching:
        return "".join(_around(lines, matching)), "lines around matches"
    return "".join(lines[:FIRST_LINES]), "beginning of the file"


def _matching(lines: Sequence[str], query: str) -> list[int]:
    """Lines with the whole query, else those with the most of its words."""
    phrase = normalised(query)
    whole = [at for at, line in enumerate(lines) if phrase in normalised(line)]
    if whole:
        return whole
    words = set(_WORDS.findall(phrase))
    counts = [len(words & set(_WORDS.findall(line.lower()))) for line in lines]
    most = max(counts, default=0)
    return [at for at, count in enumerate(counts) if count == most] if most else []


def _around(lines: Sequence[str], matching: Sequence[int]) -> list[str]:
    shown = {
        at
        for match in matching
        for at in range(max(match - AROUND, 0), min(match + AROUND + 1, len(lines)))
    }
    quoted: list[str] = []
    for at in sorted(shown):
        if at and at - 1 not in shown:
            quoted.append("…\n")
        quoted.append(lines[at])
    return quoted


def digest_text(digest: Digest, most: int) -> str:
    """The digest as lines, as many as fit."""
    context = digest.current_context
    parts = [
        ("State", [digest.project_state] if digest.project_state else []),
        ("Tasks", context.tasks),
        ("Issues", context.issues),
        ("Next", context.next_steps),
        ("Unfinished", digest.also_unfinished or []),
        ("Progress", digest.recent_progress),
        ("Decisions", [each.title for each in digest.recent_decisions]),
    ]
    lines = [f"{title}: {clipped(item, 200)}" for title, items in parts for item in items]
    kept: list[str] = []
    for line in lines:
        if sum(map(len, kept)) + len(kept) + len(line) > most:
            break
        kept.append(line)
    return "\n".join(kept)


T = TypeVar("T")

QUERY_LIMIT = 1_000  # characters
DIGEST_MOST, DIGEST_SHARE = 1_500, 0.2  # characters, and of the budget
GRAPH_SHARE = 0.4  # of the budget, together with what is before it
POINTER_SHARE = 0.5  # likewise
SHARED_FROM = 800  # characters of room
SHORTEST_EXCERPT = 80  # characters; less says nothing
LONGEST_READ = 1_000_000  # characters of a file that are looked through
PROGRESS, DECISIONS = 3, 3  # entries of the digest


class DigestPart(Value):
    text: str
    chars: int


class GraphPart(Value):
    hits: list[GraphHit]
    opened: OpenedNodes


class Excerpt(Value):
    path: str
    excerpt: str
    chars: int
    rationale: str


class Budget(Value):
    """`usedChars` counts the digest and, as JSON, graph, pointers and excerpts."""

    max_chars: Annotated[int, Field(name="maxChars")]
    used_chars: Annotated[int, Field(name="usedChars")]
    truncated: bool


class TargetedContext(Value):
    query: str
    digest: DigestPart
    graph: GraphPart
    pointers: list[Pointer]
    excerpts: list[Excerpt]
    budget: Budget
    warnings: list[Warned] | None = None


class _Room:
    """The characters that are left, and whether something was left out for want of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self.is_truncated = False

    def take(self, items: Sequence[T], share: float) -> list[T]:
        """Those that fit this share of the whole, with all that was taken before."""
        kept: list[T] = []
        for item in items:
            size = _size(item)
            if self.used + size <= self.most * share:
                kept.append(item)
                self.used += size
            else:
                self.is_truncated = True
        return kept


class TargetedTools(Family):
    """Context for one question."""

    def __init__(
        self,
        banks: Banks,
        records: BankRecords,
        mirror: Mirror,
        sections: BankSections,
        clock: Clock,
        *,
        mask: bool,
    ) -> None:
        self._graphs = GraphCalls(banks, records, mirror, clock, mask=mask)
        self._sections = sections

    @tool()
    async def get_targeted_context(
        self,
        call: Call,
        query: Annotated[str, Field("What is needed.", max_length=QUERY_LIMIT)],
        max_chars: Annotated[
            int, Field("Character ceiling.", name="maxChars", ge=500, le=1_000_000)
        ] = 8_000,
        max_files: Annotated[int, Field("Files quoted.", name="maxFiles", ge=1, le=10)] = 4,
        graph_limit: Annotated[int, Field("Entity hits.", name="graphLimit", ge=1, le=20)] = 6,
        graph_depth: Annotated[int, Field("Hops.", name="graphDepth", ge=1, le=2)] = 1,
        prefer_active_context: Annotated[
            bool, Field("Rank core files first.", name="preferActiveContext")
        ] = True,
        store_id: StoreId | None = None,
    ) -> TargetedContext:
        """Get a small, budgeted context pack for a query; the graph points into the files."""
        if not query.strip():
            raise InvalidInput("query is required.", argument="query", value=query)
        reading, met = await self._graphs.to_read(call, store_id)
        room = _Room(max_chars)
        digest = await self._digest(reading.bank, room)
        hits, opened = await _graph(reading, query, graph_limit, graph_depth)
        graph = _fitted_graph(hits, opened, room)
        scores = {hit.id: hit.score for hit in hits}
        pointers = pointers_in(opened, scores, core_first=prefer_active_context)
        pointers += await self._by_search(reading.bank, query, max_files, call)
        kept = room.take(pointers, POINTER_SHARE)
        excerpts = await self._excerpts(reading.bank, pointers, query, max_files, room)
        return TargetedContext(
            query=query,
            digest=digest,
            graph=graph,
            pointers=kept,
            excerpts=excerpts,
            budget=Budget(max_chars, room.used, room.is_truncated),
            warnings=met.and_more(opened.warnings),
        )

    async def _digest(self, bank: Bank, room: _Room) -> DigestPart:
        texts = {
            written_name(info.path): await self._text(bank, info.path)
            for info in await searched_files(bank)
            if written_name(info.path) in CORE_FILES
        }
        digest = digest_of(
            {name: text for name, text in texts.items() if text},
            most_progress=PROGRESS,
            most_decisions=DECISIONS,
            with_patterns=False,
        )
        text = digest_text(digest, min(DIGEST_MOST, int(room.most * DIGEST_SHARE)))
        room.used += len(text)
        return DigestPart(text, len(text))

    async def _by_search(self, bank: Bank, query: str, limit: int, call: Call) -> list[Pointer]:
        """What the one search finds in the files themselves, behind what the graph points at."""
        ranked = await self._sections.ranked(call, bank, query, limit)
        return [
            Pointer(found.file, (found.heading or "").rpartition(" > ")[2] or None, "search")
            for found in ranked.sections
        ]

    async def _excerpts(
        self, bank: Bank, pointers: Sequence[Pointer], query: str, most: int, room: _Room
    ) -> list[Excerpt]:
        """One of each file, the best pointer's; each leaves half of the room if there is much."""
        first: dict[str, Pointer] = {}
        for pointer in pointers:
            first.setdefault(pointer.path, pointer)
        chosen = list(first.values())[:most]
        found: list[Excerpt] = []
        for number, pointer in enumerate(chosen):
            text = await self._text(bank, pointer.path)
            if not text:
                continue
            quoted, why = passage(text, pointer.heading_hint, query)
            left = room.most - room.used
            is_shared = number + 1 < len(chosen) and left >= SHARED_FROM
            share = left // 2 if is_shared else left
            excerpt = _cut_to(share, pointer.path, quoted.strip(), f"{pointer.reason}: {why}")
            if excerpt is None or excerpt.chars < len(quoted.strip()):
                room.is_truncated = True
            if excerpt is not None:
                room.used += _size(excerpt)
                found.append(excerpt)
        return found

    async def _text(self, bank: Bank, name: str) -> str:
        """Empty for what cannot be read: a pointer may be older than its file."""
        try:
            info = await bank.files.info(name)
            if info is None or info.is_folder:
                return ""
            return as_shown(await self._sections.texts.read(bank, info))[:LONGEST_READ]
        except EverkeptError:
            return ""


async def _graph(
    reading: GraphReading, query: str, limit: int, depth: int
) -> tuple[list[GraphHit], OpenedNodes]:
    found = await reading.find(query, limit, 0)
    hits = [hit_of(entity, query) for entity in found.entities[:limit]]
    if not hits:
        return [], OpenedNodes([], [], [])
    return hits, await reading.open([hit.id for hit in hits], depth)


def _fitted_graph(hits: Sequence[GraphHit], opened: OpenedNodes, room: _Room) -> GraphPart:
    """Entities first, what is known of them next, how they are related last."""
    kept = room.take(hits, GRAPH_SHARE)
    first = {hit.id for hit in kept}
    entities = room.take(
        sorted(opened.entities, key=lambda entity: entity.id not in first), GRAPH_SHARE
    )
    shown = {entity.id for entity in entities}
    newest = sorted(opened.observations, key=lambda o: (o.entity_id in first, o.timestamp))
    observations = room.take([o for o in reversed(newest) if o.entity_id in shown], GRAPH_SHARE)
    relations = room.take(
        [r for r in opened.relations if r.from_id in shown and r.to_id in shown], GRAPH_SHARE
    )
    return GraphPart(kept, OpenedNodes(entities, observations, relations))


def _cut_to(room: int, path: str, text: str, why: str) -> Excerpt | None:
    """As much as fits, as JSON; None where that says nothing."""
    excerpt = Excerpt(path, text, len(text), why)
    frame = _size(replace(excerpt, excerpt=""))
    while excerpt.excerpt and (size := _size(excerpt)) > room:
        # Signs that JSON escapes take more room than one character.
        share = max(room - frame, 0) / (size - frame)
        kept = excerpt.excerpt[: min(int(excerpt.chars * share), excerpt.chars - 1)].rstrip()
        excerpt = replace(excerpt, excerpt=kept, chars=len(kept))
    is_whole = excerpt.chars == len(text)
    return excerpt if excerpt.chars and (is_whole or excerpt.chars >= SHORTEST_EXCERPT) else None


def _size(item: Any) -> int:
    """Characters as JSON, with the comma."""
    return len(json.dumps(to_json(item), ensure_ascii=False)) + 2
