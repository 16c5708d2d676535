"""Tool that answers a question from the graph and the files, within a budget of characters."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from everkept.core.sessions import ToolCall
from everkept.core.text import clip_text, compute_name_key
from everkept.core.times import Clock
from everkept.errors import EverkeptError, InvalidInput
from everkept.families.bank.banks import Bank, BankRecords, Banks, is_outside_bank, normalize_name
from everkept.families.bank.core_files import Digest, build_digest
from everkept.families.bank.graph.mirror import GraphMirror
from everkept.families.bank.graph.model import BankEntityView, BankOpenedNodes, FoundEntity
from everkept.families.bank.graph.queries import GraphReader
from everkept.families.bank.graph.tools import GraphAccess
from everkept.families.bank.markdown_sections import list_sections, split_lines
from everkept.families.bank.model import CORE_FILES, StoreId
from everkept.families.bank.section_records import decode_text, list_searched_files
from everkept.families.bank.section_search import BankSectionSearch
from everkept.tools.schema import Field, to_json
from everkept.tools.tool import ToolFamily, ToolWarning, tool
from everkept.values import Value, replace

PATH_ATTRIBUTES = ("docPath", "path")  # attributes of an entity that name a file ...
HEADING_ATTRIBUTES = ("heading", "section", "anchor")  # ... and a heading in it
CONTEXT_LINES = 3  # before and after a match
MAX_FIRST_LINES = 60  # of a file without a match
# scores of a match in a name
EXACT_SCORE, PREFIX_SCORE, WORD_SCORE, INSIDE_SCORE = 100.0, 80.0, 60.0, 40.0
FIELD_WEIGHTS = {"name": 1.0, "type": 0.8, "attrs": 0.6}

_DOC_POINTER = re.compile(r"DOC:\s*(?P<path>\S.*?\.(?:md|json))(?:\s+#\s+(?P<heading>.+?))?(?:\s+-\s.*)?$")
_WORDS = re.compile(r"\w{3,}")


class GraphHit(Value):
    id: str
    name: str
    entity_type: Annotated[str, Field(name="entityType")]
    score: float
    matched_in: Annotated[list[str], Field(name="matchedIn")]


class FilePointer(Value):
    """A file or one of its headings, and the reason for it."""

    path: str
    heading_hint: Annotated[str | None, Field(name="headingHint")]
    reason: str
    entity_id: Annotated[str | None, Field(name="entityId")] = None


def build_hit(entity: FoundEntity, query: str) -> GraphHit:
    """Score how literally the query, otherwise its words, match the name, type and attributes of an entity."""
    phrase = compute_name_key(query)
    words = set(_WORDS.findall(phrase))
    fields = {
        "name": compute_name_key(entity.name),
        "type": compute_name_key(entity.entity_type),
        "attrs": compute_name_key(" ".join(map(str, (entity.attrs or {}).values()))),
    }
    scores = {name: FIELD_WEIGHTS[name] * _score_text(text, phrase, words) for name, text in fields.items()}
    matched = [name for name, score in scores.items() if score]
    best = round(max(scores.values()), 2)
    return GraphHit(entity.id, entity.name, entity.entity_type, best, matched)


def _score_text(text: str, phrase: str, words: set[str]) -> float:
    if phrase in text:
        if text.startswith(phrase):
            return EXACT_SCORE if text == phrase else PREFIX_SCORE
        return WORD_SCORE if re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text) else INSIDE_SCORE
    return INSIDE_SCORE * len(words & set(_WORDS.findall(text))) / len(words) if words else 0.0


def find_pointers(opened: BankOpenedNodes, scores: Mapping[str, float], *, core_first: bool) -> list[FilePointer]:
    """Return the files that attributes and observations refer to, best entities first, then those with a heading."""
    found: dict[tuple[str, str | None], FilePointer] = {}
    for pointer in [*_find_in_attributes(opened.entities), *_find_in_observations(opened)]:
        if not is_outside_bank(pointer.path):
            found.setdefault((pointer.path, pointer.heading_hint), pointer)

    def place(pointer: FilePointer) -> tuple[float, bool, bool, str]:
        score = scores.get(pointer.entity_id or "", 0.0)
        is_core = core_first and pointer.path in CORE_FILES
        return -score, pointer.heading_hint is None, not is_core, pointer.path

    return sorted(found.values(), key=place)


def _find_in_attributes(entities: Iterable[BankEntityView]) -> Iterable[FilePointer]:
    for entity in entities:
        attrs = entity.attrs or {}
        path = _find_first(attrs, PATH_ATTRIBUTES)
        if path:
            reason = f"attributes of {entity.name}"
            yield FilePointer(path, _find_first(attrs, HEADING_ATTRIBUTES), reason, entity.id)


def _find_in_observations(opened: BankOpenedNodes) -> Iterable[FilePointer]:
    names = {entity.id: entity.name for entity in opened.entities}
    for observation in opened.observations:
        if found := _DOC_POINTER.match(observation.text):
            owner = observation.entity_id
            reason = f"observation of {names.get(owner, owner)}"
            yield FilePointer(found["path"], found["heading"], reason, owner)


def _find_first(attrs: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    return next((v for key in keys if isinstance(v := attrs.get(key), str) and v.strip()), None)


def select_passage(text: str, heading: str | None, query: str) -> tuple[str, str]:
    """Return a passage of a file and its description: the section, the lines around matches, or the beginning."""
    lines = split_lines(text)
    wanted = compute_name_key(heading or "").lstrip("#").strip()
    if wanted:
        for section in list_sections(text):
            if wanted in compute_name_key(section.title):
                quoted = "".join(lines[section.heading : section.end])
                return quoted, f"section {section.title}"
    matching = _find_matching(lines, query)
    if matching:
        return "".join(_select_around(lines, matching)), "lines around matches"
    return "".join(lines[:MAX_FIRST_LINES]), "beginning of the file"


def _find_matching(lines: Sequence[str], query: str) -> list[int]:
    """Return the lines with the whole query, otherwise those with the most of its words."""
    phrase = compute_name_key(query)
    whole = [at for at, line in enumerate(lines) if phrase in compute_name_key(line)]
    if whole:
        return whole
    words = set(_WORDS.findall(phrase))
    counts = [len(words & set(_WORDS.findall(line.lower()))) for line in lines]
    most = max(counts, default=0)
    return [at for at, count in enumerate(counts) if count == most] if most else []


def _select_around(lines: Sequence[str], matching: Sequence[int]) -> list[str]:
    shown = {
        at
        for match in matching
        for at in range(max(match - CONTEXT_LINES, 0), min(match + CONTEXT_LINES + 1, len(lines)))
    }
    quoted: list[str] = []
    for at in sorted(shown):
        if at and at - 1 not in shown:
            quoted.append("…\n")
        quoted.append(lines[at])
    return quoted


def format_digest(digest: Digest, most: int) -> str:
    """Format the digest as lines, up to the limit."""
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
    lines = [f"{title}: {clip_text(item, 200)}" for title, items in parts for item in items]
    kept: list[str] = []
    for line in lines:
        if sum(map(len, kept)) + len(kept) + len(line) > most:
            break
        kept.append(line)
    return "\n".join(kept)


T = TypeVar("T")

MAX_QUERY_CHARACTERS = 1_000
MAX_DIGEST_CHARACTERS, DIGEST_SHARE = 1_500, 0.2  # limit, and share of the budget
GRAPH_SHARE = 0.4  # of the budget, including everything before it
POINTER_SHARE = 0.5  # of the budget, including everything before it
MIN_SHARED_CHARACTERS = 800  # with less left, one excerpt gets all of it
MIN_EXCERPT_CHARACTERS = 80  # a shorter excerpt is useless
MAX_READ_CHARACTERS = 1_000_000  # of a file
MAX_PROGRESS_ENTRIES, MAX_DECISIONS = 3, 3  # in the digest


class DigestPart(Value):
    text: str
    chars: int


class GraphPart(Value):
    hits: list[GraphHit]
    opened: BankOpenedNodes


class FileExcerpt(Value):
    path: str
    excerpt: str
    chars: int
    rationale: str


class ContextBudget(Value):
    """`usedChars` counts the digest and, as JSON, graph, pointers and excerpts."""

    max_chars: Annotated[int, Field(name="maxChars")]
    used_chars: Annotated[int, Field(name="usedChars")]
    truncated: bool


class TargetedContext(Value):
    query: str
    digest: DigestPart
    graph: GraphPart
    pointers: list[FilePointer]
    excerpts: list[FileExcerpt]
    budget: ContextBudget
    warnings: list[ToolWarning] | None = None


class _CharacterBudget:
    """Used characters, and whether something was omitted."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self.is_truncated = False

    def take(self, items: Sequence[T], share: float) -> list[T]:
        """Return the items within this share of the budget, which includes everything taken before."""
        kept: list[T] = []
        for item in items:
            size = _count_characters(item)
            if self.used + size <= self.most * share:
                kept.append(item)
                self.used += size
            else:
                self.is_truncated = True
        return kept


class TargetedTools(ToolFamily):
    def __init__(
        self,
        banks: Banks,
        records: BankRecords,
        mirror: GraphMirror,
        sections: BankSectionSearch,
        clock: Clock,
        *,
        mask: bool,
    ) -> None:
        self._graphs = GraphAccess(banks, records, mirror, clock, mask=mask)
        self._sections = sections

    @tool()
    async def get_targeted_context(
        self,
        call: ToolCall,
        query: Annotated[str, Field("What you need to know", max_length=MAX_QUERY_CHARACTERS)],
        max_chars: Annotated[
            int, Field("Maximum characters, default 8000", name="maxChars", ge=500, le=1_000_000)
        ] = 8_000,
        max_files: Annotated[int, Field("Maximum files to quote, default 4", name="maxFiles", ge=1, le=10)] = 4,
        graph_limit: Annotated[
            int, Field("Maximum entities, default 6", name="graphLimit", ge=1, le=20, listed=False)
        ] = 6,
        graph_depth: Annotated[int, Field("Hops, 1 or 2, default 1", name="graphDepth", ge=1, le=2, listed=False)] = 1,
        prefer_active_context: Annotated[
            bool, Field("false: do not rank core files first; default true", name="preferActiveContext", listed=False)
        ] = True,
        store_id: StoreId | None = None,
    ) -> TargetedContext:
        """Get the parts of bank files that matter for a query, found through the graph, within a size limit."""
        if not query.strip():
            raise InvalidInput("query is required.", hint="Pass your question.", argument="query", value=query)
        reading, met = await self._graphs.open_to_read(call, store_id)
        room = _CharacterBudget(max_chars)
        digest = await self._read_digest(reading.bank, room)
        hits, opened = await _search_graph(reading, query, graph_limit, graph_depth)
        graph = _fit_graph(hits, opened, room)
        scores = {hit.id: hit.score for hit in hits}
        pointers = find_pointers(opened, scores, core_first=prefer_active_context)
        pointers += await self._search_pointers(reading.bank, query, max_files, call)
        kept = room.take(pointers, POINTER_SHARE)
        excerpts = await self._read_excerpts(reading.bank, pointers, query, max_files, room)
        return TargetedContext(
            query=query,
            digest=digest,
            graph=graph,
            pointers=kept,
            excerpts=excerpts,
            budget=ContextBudget(max_chars, room.used, room.is_truncated),
            warnings=met.combine(opened.warnings),
        )

    async def _read_digest(self, bank: Bank, room: _CharacterBudget) -> DigestPart:
        texts = {
            normalize_name(info.path): await self._read_text(bank, info.path)
            for info in await list_searched_files(bank)
            if normalize_name(info.path) in CORE_FILES
        }
        digest = build_digest(
            {name: text for name, text in texts.items() if text},
            most_progress=MAX_PROGRESS_ENTRIES,
            most_decisions=MAX_DECISIONS,
            with_patterns=False,
        )
        text = format_digest(digest, min(MAX_DIGEST_CHARACTERS, int(room.most * DIGEST_SHARE)))
        room.used += len(text)
        return DigestPart(text, len(text))

    async def _search_pointers(self, bank: Bank, query: str, limit: int, call: ToolCall) -> list[FilePointer]:
        """Return the files that the search finds, to follow the pointers of the graph."""
        ranked = await self._sections.rank_sections(call, bank, query, limit)
        return [
            FilePointer(found.file, (found.heading or "").rpartition(" > ")[2] or None, "search")
            for found in ranked.sections
        ]

    async def _read_excerpts(
        self, bank: Bank, pointers: Sequence[FilePointer], query: str, most: int, room: _CharacterBudget
    ) -> list[FileExcerpt]:
        """Return one excerpt for each file, from its best pointer. Each leaves half of a large budget for the next."""
        first: dict[str, FilePointer] = {}
        for pointer in pointers:
            first.setdefault(pointer.path, pointer)
        chosen = list(first.values())[:most]
        found: list[FileExcerpt] = []
        for number, pointer in enumerate(chosen):
            text = await self._read_text(bank, pointer.path)
            if not text:
                continue
            quoted, why = select_passage(text, pointer.heading_hint, query)
            left = room.most - room.used
            is_shared = number + 1 < len(chosen) and left >= MIN_SHARED_CHARACTERS
            share = left // 2 if is_shared else left
            excerpt = _cut_excerpt(share, pointer.path, quoted.strip(), f"{pointer.reason}: {why}")
            if excerpt is None or excerpt.chars < len(quoted.strip()):
                room.is_truncated = True
            if excerpt is not None:
                room.used += _count_characters(excerpt)
                found.append(excerpt)
        return found

    async def _read_text(self, bank: Bank, name: str) -> str:
        """Return the text, empty if it cannot be read: a pointer may be outdated."""
        try:
            info = await bank.files.read_info(name)
            if info is None or info.is_folder:
                return ""
            return decode_text(await self._sections.texts.read(bank, info))[:MAX_READ_CHARACTERS]
        except EverkeptError:
            return ""


async def _search_graph(
    reading: GraphReader, query: str, limit: int, depth: int
) -> tuple[list[GraphHit], BankOpenedNodes]:
    found = await reading.find(query, limit, 0)
    hits = [build_hit(entity, query) for entity in found.entities[:limit]]
    if not hits:
        return [], BankOpenedNodes([], [], [])
    return hits, await reading.open([hit.id for hit in hits], depth)


def _fit_graph(hits: Sequence[GraphHit], opened: BankOpenedNodes, room: _CharacterBudget) -> GraphPart:
    """Return the graph within the budget: entities first, then their observations, then relations."""
    kept = room.take(hits, GRAPH_SHARE)
    first = {hit.id for hit in kept}
    entities = room.take(sorted(opened.entities, key=lambda entity: entity.id not in first), GRAPH_SHARE)
    shown = {entity.id for entity in entities}
    newest = sorted(opened.observations, key=lambda o: (o.entity_id in first, o.timestamp))
    observations = room.take([o for o in reversed(newest) if o.entity_id in shown], GRAPH_SHARE)
    relations = room.take([r for r in opened.relations if r.from_id in shown and r.to_id in shown], GRAPH_SHARE)
    return GraphPart(kept, BankOpenedNodes(entities, observations, relations))


def _cut_excerpt(room: int, path: str, text: str, why: str) -> FileExcerpt | None:
    """Cut the excerpt to the budget as JSON. Return None if it would be too short."""
    excerpt = FileExcerpt(path, text, len(text), why)
    frame = _count_characters(replace(excerpt, excerpt=""))
    while excerpt.excerpt and (size := _count_characters(excerpt)) > room:
        # Characters that JSON escapes count more than once.
        share = max(room - frame, 0) / (size - frame)
        kept = excerpt.excerpt[: min(int(excerpt.chars * share), excerpt.chars - 1)].rstrip()
        excerpt = replace(excerpt, excerpt=kept, chars=len(kept))
    is_whole = excerpt.chars == len(text)
    return excerpt if excerpt.chars and (is_whole or excerpt.chars >= MIN_EXCERPT_CHARACTERS) else None


def _count_characters(item: Any) -> int:
    """Return the length of an item as JSON, including its separator."""
    return len(json.dumps(to_json(item), ensure_ascii=False)) + 2
