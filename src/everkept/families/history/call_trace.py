"""Code and its symbols as records and links, and the calls among them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from everkept.core.paths import ends_with, split_loose, strip_root
from everkept.core.ports import RecordStore
from everkept.core.records import Record, RecordFilter, RecordLink, Weights
from everkept.core.text import compute_digest
from everkept.families.history.code_outlines import CodeOutline
from everkept.families.history.model import CALLS, CODE, DEFINES, EXTENDS, IMPORTS, SYMBOL, build_symbol_id
from everkept.retrieval.profile import SearchPlace, SearchProfile
from everkept.retrieval.search import search
from everkept.values import Value, field

MODULE = "module"


def build_symbol_links(code: Record, outline: CodeOutline) -> tuple[list[Record], list[RecordLink]]:
    """Return the symbols, some of which may already be stored, and the code's links to them."""
    symbols: dict[str, Record] = {}
    links: dict[tuple[str, str], RecordLink] = {}

    def link(verb: str, name: str, kind: str | None, facets: Mapping[str, Any]) -> None:
        symbol = symbols.setdefault(name, _build_symbol(code, name, kind))
        own = f"link_{compute_digest(f'{code.id} {verb} {symbol.id}')[:24]}"
        links.setdefault((verb, name), RecordLink(own, code.id, verb, symbol.id, code.created_at, facets))

    for defined in outline.defines:
        link(DEFINES, defined.name, defined.kind, {})
    for imported in outline.imports:
        link(IMPORTS, imported.name, MODULE if imported.is_module else None, {})
    for verb, named in ((CALLS, outline.calls), (EXTENDS, outline.extends)):
        by: dict[str, list[str]] = {}
        for each in named:
            by.setdefault(each.name, []).extend([each.by] if each.by else [])
        for name, users in by.items():
            link(verb, name, None, {"by": users} if users else {})
    return list(symbols.values()), list(links.values())


def _build_symbol(code: Record, name: str, kind: str | None) -> Record:
    return Record(
        id=build_symbol_id(code.scope, name),
        kind=SYMBOL,
        created_at=code.created_at,
        updated_at=code.updated_at,
        name=name,
        name_key=name,
        variant=code.scope,
        type=kind,
        scope=code.scope,
    )


MAX_NAMES = 8  # looked up per question
MAX_SYMBOLS = 40  # per name, in all projects
MAX_LINKS = 1_000  # at the symbols of one step
MAX_CALLERS = 20  # whose own callers are traced
# Weights of a relation by how well the name matches, and for indirect callers.
EXACT_WEIGHT, OTHER_CASE_WEIGHT, LAST_PART_WEIGHT = 1.0, 0.9, 0.75
INDIRECT_WEIGHT = 0.6
# relative to callers, which questions ask for most
CALLEE_WEIGHT, DEFINITION_WEIGHT = 0.85, 0.88
RECENCY_SHARE = 0.1  # share of the score by which the newest relation exceeds the oldest

SYMBOL_PROFILE = SearchProfile(kinds=(SYMBOL,), reading="tiers")
FILE_PROFILE = SearchProfile(kinds=(CODE,), reading="tiers", weights=Weights(name=4.0, text=0.0, context=0.0))

_FILE_NAME = re.compile(r"[/\\]|\.[A-Za-z0-9+]{1,6}$")


class CodeRelation(Value):
    """A sentence such as "`checkout` calls `Cart.total`", and the code that shows it."""

    sentence: str
    verb: str
    code: Record
    score: float

    @property
    def turn(self) -> str | None:
        return self.code.parent


class CallTrace(Value):
    """Relations of some names, best first."""

    relations: list[CodeRelation] = field(default_factory=list[CodeRelation])
    total: int = 0  # including relations beyond the limit
    sessions: list[str] = field(default_factory=list[str])  # that mention the names, newest first


class _WeightedSentence(Value):
    sentence: str
    verb: str
    code: str
    weight: float


async def trace_calls(store: RecordStore, names: Sequence[str], *, limit: int = 20) -> CallTrace:
    """Trace the callers, callees, definitions, imports and subclasses of functions, classes, modules or files."""
    told: list[_WeightedSentence] = []
    for name in list(dict.fromkeys(map(_normalize_name, names)))[:MAX_NAMES]:
        symbols = await _find_symbols(store, name)
        if symbols:
            told += await _trace_symbols(store, symbols)
        if _FILE_NAME.search(name):
            told += await _trace_files(store, name)
    code = {record.id: record for record in await store.get([each.code for each in told])}
    return _build_trace([each for each in told if each.code in code], code, limit)


async def _find_symbols(store: RecordStore, name: str) -> dict[str, tuple[Record, float]]:
    """Return matching symbols by id with a weight: exact name, other case, or same last part."""
    where = RecordFilter(kinds=(SYMBOL,), name_keys=(name,))
    exact = await store.scan(where, limit=MAX_SYMBOLS)
    found = {record.id: (record, EXACT_WEIGHT) for record in exact}
    last = _get_last_part(name)
    place = SearchPlace(store, RecordFilter(kinds=(SYMBOL,)))
    for hit in (await search([place], last, SYMBOL_PROFILE, limit=MAX_SYMBOLS)).hits:
        own = hit.record.name or ""
        if own.lower() == name.lower():
            found.setdefault(hit.record.id, (hit.record, OTHER_CASE_WEIGHT))
        elif _get_last_part(own).lower() == last.lower() and ("." not in name or "." not in own):
            found.setdefault(hit.record.id, (hit.record, LAST_PART_WEIGHT))
    return found


async def _trace_symbols(store: RecordStore, symbols: dict[str, tuple[Record, float]]) -> list[_WeightedSentence]:
    links = await store.find_links(list(symbols), direction="in", sources=(CODE,), limit=MAX_LINKS)
    told: list[_WeightedSentence] = []
    callers: dict[tuple[str, str], float] = {}
    for link in links:
        symbol, fits = symbols[link.target]
        sentences = _format_sentences(link, symbol.name or "")
        weight = fits * DEFINITION_WEIGHT if link.verb == DEFINES else fits
        told += [_WeightedSentence(sentence, link.verb, link.source, weight) for sentence in sentences]
        if link.verb == CALLS:
            callers |= {(by, symbol.scope): fits for by in link.facets.get("by", ())}
    told += await _trace_callees(store, symbols, links)
    told += await _trace_indirect_callers(store, callers, known=set(symbols))
    return told


async def _trace_callees(
    store: RecordStore, symbols: dict[str, tuple[Record, float]], links: Sequence[RecordLink]
) -> list[_WeightedSentence]:
    """Return the calls in the code that defines the symbols."""
    defining = {link.source: symbols[link.target] for link in links if link.verb == DEFINES}
    if not defining:
        return []
    out = await store.find_links(list(defining), direction="out", limit=MAX_LINKS)
    targets = {r.id: r for r in await store.get(list({link.target for link in out}))}
    told: list[_WeightedSentence] = []
    for link in out:
        symbol, fits = defining[link.source]
        target = targets.get(link.target)
        if link.verb == CALLS and target is not None and symbol.name in link.facets.get("by", ()):
            sentence = f"`{symbol.name}` calls `{target.name}`"
            told.append(_WeightedSentence(sentence, CALLS, link.source, fits * CALLEE_WEIGHT))
    return told


async def _trace_indirect_callers(
    store: RecordStore, callers: dict[tuple[str, str], float], known: set[str]
) -> list[_WeightedSentence]:
    """Return the callers of the callers, which a change also affects."""
    chosen = list(callers)[:MAX_CALLERS]
    if not chosen:
        return []
    names = tuple({name for name, _ in chosen})
    scopes = tuple({scope for _, scope in chosen})
    where = RecordFilter(kinds=(SYMBOL,), name_keys=names, scopes=scopes)
    found = {r.id: r for r in await store.scan(where, limit=MAX_SYMBOLS) if r.id not in known}
    if not found:
        return []
    links = await store.find_links(list(found), direction="in", sources=(CODE,), limit=MAX_LINKS)
    return [
        _WeightedSentence(sentence, CALLS, link.source, INDIRECT_WEIGHT)
        for link in links
        if link.verb == CALLS and link.facets.get("by")
        for sentence in _format_sentences(link, found[link.target].name or "")
    ]


async def _trace_files(store: RecordStore, name: str) -> list[_WeightedSentence]:
    """Return the definitions and imports in the code of a file."""
    place = SearchPlace(store, RecordFilter(kinds=(CODE,)))
    hits = (await search([place], name, FILE_PROFILE, limit=MAX_SYMBOLS)).hits
    asked = strip_root(split_loose(name))
    named = [hit.record for hit in hits if hit.record.name is not None]
    code = {record.id: record for record in named if ends_with(split_loose(record.name or ""), asked)}
    if not code:
        return []
    links = await store.find_links(list(code), direction="out", limit=MAX_LINKS)
    targets = {r.id: r for r in await store.get(list({link.target for link in links}))}
    return [
        _WeightedSentence(f"{code[link.source].name} {link.verb} `{target.name}`", link.verb, link.source, 0.9)
        for link in links
        if link.verb in (DEFINES, IMPORTS) and (target := targets.get(link.target)) is not None
    ]


def _format_sentences(link: RecordLink, name: str) -> Iterator[str]:
    by: Sequence[str] = link.facets.get("by", ())
    if link.verb == DEFINES:
        yield f"`{name}` is defined"
    elif link.verb in (CALLS, EXTENDS) and by:
        yield from (f"`{each}` {link.verb} `{name}`" for each in by if each != name)
    else:
        yield f"code that {link.verb} `{name}`"


def _build_trace(told: Iterable[_WeightedSentence], code: dict[str, Record], limit: int) -> CallTrace:
    """Keep each sentence once per project, with the newest code that shows it."""
    newest: dict[tuple[str, str], _WeightedSentence] = {}
    for each in sorted(told, key=lambda one: (-one.weight, -code[one.code].effective_at)):
        newest.setdefault((each.sentence, code[each.code].scope), each)
    times = [code[each.code].effective_at for each in newest.values()]
    first, span = min(times, default=0), max(max(times, default=0) - min(times, default=0), 1)
    relations = [
        CodeRelation(
            _append_file(each, code[each.code]),
            each.verb,
            code[each.code],
            each.weight * (1 - RECENCY_SHARE + RECENCY_SHARE * (code[each.code].effective_at - first) / span),
        )
        for each in newest.values()
    ]
    relations.sort(key=lambda relation: (-relation.score, -relation.code.effective_at, relation.sentence))
    touched = sorted({r.code.id: r.code for r in relations}.values(), key=lambda c: -c.effective_at)
    sessions = dict.fromkeys(record.session for record in touched if record.session)
    return CallTrace(relations[:limit], len(relations), list(sessions))


def _append_file(told: _WeightedSentence, code: Record) -> str:
    return f"{told.sentence} in {code.name}" if code.name and code.name not in told.sentence else told.sentence


def _normalize_name(name: str) -> str:
    """Return the stored form of a name in any language: `Cart::total()` becomes `Cart.total`."""
    return re.sub(r"::|#|->", ".", name.removesuffix("()"))


def _get_last_part(name: str) -> str:
    return name.rpartition(".")[2] or name
