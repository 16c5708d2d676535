"""Versions of one fact among the hits of a search: near-duplicates, and facts that were updated."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil

from everkept.core.records import Record
from everkept.retrieval.profile import SUPERSEDED_BY, SearchHit, SearchPlace
from everkept.values import Value, replace

MAX_VERSIONS = 20  # of one fact that are followed
MIN_SHARED_WORDS = 0.85  # of all words of two texts that say the same
MAX_COMPARED_CHARACTERS = 2_000
EVENT_TYPE = "episodic"  # two events stay two events, however similar their texts are
_NEGATION_LIST = """
    aren cannot couldn didn doesn don hasn isn kein keine never no none nor not nicht shouldn t wasn without won wouldn
"""
NEGATIONS = frozenset(_NEGATION_LIST.split())

_WORD = re.compile(r"[^\W_]+")


class _Statement(Value):
    """Words of a text. Another number or negation makes it another statement."""

    words: frozenset[str]
    marks: frozenset[str]
    sorted_words: tuple[str, ...]

    def equals(self, other: "_Statement") -> bool:
        """Compare it with a statement that has the same marks."""
        ours, theirs = len(self.words), len(other.words)
        if min(ours, theirs) < MIN_SHARED_WORDS * max(ours, theirs):
            return False
        shared = len(self.words & other.words)
        return shared > 0 and shared >= MIN_SHARED_WORDS * (ours + theirs - shared)

    def list_rarest_words(self, counts: Mapping[str, int]) -> list[str]:
        """Return so many of its rarest words that a statement without any of them does not equal it."""
        omissible = len(self.words) - ceil(MIN_SHARED_WORDS * len(self.words))
        return sorted(self.sorted_words, key=counts.__getitem__)[: omissible + 1]


@lru_cache(512)  # most candidates of a search were candidates of the one before
def _read_statement(text: str) -> _Statement:
    words = frozenset(map(str.casefold, _WORD.findall(text)))
    marks = frozenset(word for word in words if word in NEGATIONS or not word.isalpha())
    return _Statement(words, marks, tuple(sorted(words)))


def fold_duplicates(hits: Sequence[SearchHit]) -> list[SearchHit]:
    """Return the hits without those that say the same as a better one. Each kept hit counts its duplicates.

    Only statements of one author with the same marks are compared, and events never are.
    """
    told = {
        (hit.place, hit.record.id): _read_statement(hit.record.text[:MAX_COMPARED_CHARACTERS])
        for hit in hits
        if hit.record.type != EVENT_TYPE
    }
    counts = Counter(word for said in told.values() for word in said.words)
    kept: list[SearchHit] = []
    rivals: defaultdict[tuple[str | None, frozenset[str], str], list[tuple[int, _Statement]]] = defaultdict(list)
    for hit in hits:
        said = told.get((hit.place, hit.record.id))
        if said is None:
            kept.append(hit)
            continue
        # Two that are equal share one of their rarest words, so most are never compared.
        lists = [rivals[hit.record.author, said.marks, word] for word in said.list_rarest_words(counts)]
        number = min((place for others in lists for place, other in others if said.equals(other)), default=None)
        if number is not None:
            kept[number] = replace(kept[number], duplicates=kept[number].duplicates + 1)
            continue
        for others in lists:
            others.append((len(kept), said))
        kept.append(hit)
    return kept


async def show_newest_versions(hits: Sequence[SearchHit], places: Sequence[SearchPlace]) -> list[SearchHit]:
    """Replace facts by their newest version, which gets the best score of all of them.

    A fact whose newer version is forgotten or outside the search stays.
    """
    known = {hit.record.id: (hit.place, hit.record) for hit in hits}
    shown: list[SearchHit] = []
    for hit in hits:
        place, newest = await _find_newest(hit, places, known)
        shown.append(hit if newest is hit.record else _move(hit, place, newest))
    shown.sort(key=lambda hit: -hit.score)
    best: dict[str, SearchHit] = {}
    for hit in shown:
        best.setdefault(hit.record.id, hit)
    return list(best.values())


def _move(hit: SearchHit, place: int, newer: Record) -> SearchHit:
    """Return the hit with its newer version. It takes the place of the older one, whose loss does not count."""
    why = {part: value for part, value in hit.why.items() if part != "superseded"}
    return replace(hit, record=newer, place=place, score=min(sum(why.values()), 1.0), why=why)


async def _find_newest(
    hit: SearchHit, places: Sequence[SearchPlace], known: Mapping[str, tuple[int, Record]]
) -> tuple[int, Record]:
    """Return the newest version within the search, and the number of its place."""
    newest = hit.place, hit.record
    for _ in range(MAX_VERSIONS):
        newer_id = newest[1].facets.get(SUPERSEDED_BY)
        newer = (known.get(newer_id) or await _read_version(newer_id, places)) if newer_id else None
        if newer is None or newer[1].deleted_at is not None:
            break
        newest = newer
    return newest


async def _read_version(record_id: str, places: Sequence[SearchPlace]) -> tuple[int, Record] | None:
    for number, place in enumerate(places):
        for record in await place.store.scan(replace(place.where, ids=(record_id,)), limit=1):
            return number, record
    return None
