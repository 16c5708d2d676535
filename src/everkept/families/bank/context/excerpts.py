"""What of the bank's files belongs to entities of the graph: pointers, and passages to quote."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from everkept.core.text import clipped, normalised
from everkept.errors import Refused
from everkept.families.bank.context.digest import Digest
from everkept.families.bank.files.names import checked_name
from everkept.families.bank.graph_model import EntityView, FoundEntity, OpenedNodes
from everkept.families.bank.model import CORE_FILES
from everkept.families.bank.text.markdown import lines_of, sections
from everkept.tools.schema import Field
from everkept.values import Value

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
