"""Code and its symbols as records and links, and what calls what among them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from everkept.core.paths import ends_with, loose_parts, names_in
from everkept.core.ports import RecordStore
from everkept.core.records import Link, Record, Weights, Where
from everkept.core.text import digest
from everkept.families.history.code_outlines import Outline
from everkept.families.history.model import (
    CALLS,
    CODE,
    DEFINES,
    EXTENDS,
    IMPORTS,
    SYMBOL,
    symbol_id,
)
from everkept.retrieval.profile import Place, Profile
from everkept.retrieval.search import search
from everkept.values import Value, field

MODULE = "module"


def links_of(code: Record, outline: Outline) -> tuple[list[Record], list[Link]]:
    """The symbols, of which some may be known already, and how the code is linked to them."""
    symbols: dict[str, Record] = {}
    links: dict[tuple[str, str], Link] = {}

    def link(verb: str, name: str, kind: str | None, facets: Mapping[str, Any]) -> None:
        symbol = symbols.setdefault(name, _symbol(code, name, kind))
        links.setdefault((verb, name), _link(code, verb, symbol, facets))

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


def _symbol(code: Record, name: str, kind: str | None) -> Record:
    return Record(
        id=symbol_id(code.scope, name),
        kind=SYMBOL,
        created_at=code.created_at,
        updated_at=code.updated_at,
        name=name,
        name_key=name,
        variant=code.scope,
        type=kind,
        scope=code.scope,
    )


def _link(code: Record, verb: str, symbol: Record, facets: Mapping[str, Any]) -> Link:
    name = digest(f"{code.id} {verb} {symbol.id}")
    return Link(f"link_{name[:24]}", code.id, verb, symbol.id, code.created_at, facets)


MOST_NAMES = 8  # that are looked up
MOST_SYMBOLS = 40  # of one name, in all projects
MOST_LINKS = 1_000  # at the symbols of one step
MOST_CALLERS = 20  # whose own callers are asked for
# What a relation counts by how well the name fits, and by how far it is from what was asked.
EXACT, ALMOST, PART = 1.0, 0.9, 0.75
BEYOND = 0.6
OWN_CALLS, DEFINED = 0.85, 0.88  # against being called: that is what is asked for most
LATEST_SHARE = 0.1  # of the score that the newest has and the oldest lacks

SYMBOLS = Profile(kinds=(SYMBOL,), reading="tiers")
FILES = Profile(kinds=(CODE,), reading="tiers", weights=Weights(name=4.0, text=0.0, context=0.0))

_FILE = re.compile(r"[/\\]|\.[A-Za-z0-9+]{1,6}$")


class Relation(Value):
    """A sentence such as "`checkout` calls `Cart.total`", and the code that shows it."""

    sentence: str
    verb: str
    code: Record
    score: float

    @property
    def turn(self) -> str | None:
        return self.code.parent


class Traced(Value):
    """What is known of some names, best first; `total` counts what was cut off too.

    `sessions` are the conversations that touched them, the newest first.
    """

    relations: list[Relation] = field(default_factory=list[Relation])
    total: int = 0
    sessions: list[str] = field(default_factory=list[str])


class _Told(Value):
    sentence: str
    verb: str
    code: str
    weight: float


async def trace(
    store: RecordStore,
    names: Sequence[str],
    *,
    project_scopes: Sequence[str] = (),
    limit: int = 20,
) -> Traced:
    """Who calls, defines, imports and extends these, what they call themselves, and whose callers
    a change would reach. Names are functions, classes, modules, or files."""
    told: list[_Told] = []
    for name in list(dict.fromkeys(map(_dotted, names)))[:MOST_NAMES]:
        symbols = await _symbols(store, name, project_scopes)
        if symbols:
            told += await _of_symbols(store, symbols)
        if _FILE.search(name):
            told += await _of_files(store, name, project_scopes)
    code = {record.id: record for record in await store.get([each.code for each in told])}
    return _traced([each for each in told if each.code in code], code, limit)


async def _symbols(
    store: RecordStore, name: str, scopes: Sequence[str]
) -> dict[str, tuple[Record, float]]:
    """By id, with how well each fits: the very name, it in another case, or its last part."""
    where = Where(kinds=(SYMBOL,), name_keys=(name,), scopes=tuple(scopes))
    exact = await store.scan(where, limit=MOST_SYMBOLS)
    found = {record.id: (record, EXACT) for record in exact}
    last = _last(name)
    place = Place(store, Where(kinds=(SYMBOL,), scopes=tuple(scopes)))
    for hit in (await search([place], last, SYMBOLS, limit=MOST_SYMBOLS)).hits:
        own = hit.record.name or ""
        if own.lower() == name.lower():
            found.setdefault(hit.record.id, (hit.record, ALMOST))
        elif _last(own).lower() == last.lower() and ("." not in name or "." not in own):
            found.setdefault(hit.record.id, (hit.record, PART))
    return found


async def _of_symbols(store: RecordStore, symbols: dict[str, tuple[Record, float]]) -> list[_Told]:
    links = await store.links(list(symbols), direction="in", sources=(CODE,), limit=MOST_LINKS)
    told: list[_Told] = []
    callers: dict[tuple[str, str], float] = {}
    for link in links:
        symbol, fits = symbols[link.target]
        sentences = _sentences(link, symbol.name or "")
        weight = fits * DEFINED if link.verb == DEFINES else fits
        told += [_Told(sentence, link.verb, link.source, weight) for sentence in sentences]
        if link.verb == CALLS:
            callers |= {(by, symbol.scope): fits for by in link.facets.get("by", ())}
    told += await _called_by(store, symbols, links)
    told += await _beyond(store, callers, known=set(symbols))
    return told


async def _called_by(
    store: RecordStore, symbols: dict[str, tuple[Record, float]], links: Sequence[Link]
) -> list[_Told]:
    """What the code that defines them lets them call."""
    defining = {link.source: symbols[link.target] for link in links if link.verb == DEFINES}
    if not defining:
        return []
    out = await store.links(list(defining), direction="out", limit=MOST_LINKS)
    targets = {r.id: r for r in await store.get(list({link.target for link in out}))}
    told: list[_Told] = []
    for link in out:
        symbol, fits = defining[link.source]
        target = targets.get(link.target)
        if link.verb == CALLS and target is not None and symbol.name in link.facets.get("by", ()):
            sentence = f"`{symbol.name}` calls `{target.name}`"
            told.append(_Told(sentence, CALLS, link.source, fits * OWN_CALLS))
    return told


async def _beyond(
    store: RecordStore, callers: dict[tuple[str, str], float], known: set[str]
) -> list[_Told]:
    """Who calls the callers: a change reaches them too."""
    chosen = list(callers)[:MOST_CALLERS]
    if not chosen:
        return []
    names = tuple({name for name, _ in chosen})
    scopes = tuple({scope for _, scope in chosen})
    where = Where(kinds=(SYMBOL,), name_keys=names, scopes=scopes)
    found = {r.id: r for r in await store.scan(where, limit=MOST_SYMBOLS) if r.id not in known}
    if not found:
        return []
    links = await store.links(list(found), direction="in", sources=(CODE,), limit=MOST_LINKS)
    return [
        _Told(sentence, CALLS, link.source, BEYOND)
        for link in links
        if link.verb == CALLS and link.facets.get("by")
        for sentence in _sentences(link, found[link.target].name or "")
    ]


async def _of_files(store: RecordStore, name: str, scopes: Sequence[str]) -> list[_Told]:
    """What the code of a file defines and imports."""
    place = Place(store, Where(kinds=(CODE,), scopes=tuple(scopes)))
    hits = (await search([place], name, FILES, limit=MOST_SYMBOLS)).hits
    code = {hit.record.id: hit.record for hit in hits if _is_file(hit.record.name, name)}
    if not code:
        return []
    links = await store.links(list(code), direction="out", limit=MOST_LINKS)
    targets = {r.id: r for r in await store.get(list({link.target for link in links}))}
    return [
        _Told(f"{code[link.source].name} {link.verb} `{target.name}`", link.verb, link.source, 0.9)
        for link in links
        if link.verb in (DEFINES, IMPORTS) and (target := targets.get(link.target)) is not None
    ]


def _sentences(link: Link, name: str) -> Iterator[str]:
    by: Sequence[str] = link.facets.get("by", ())
    if link.verb == DEFINES:
        yield f"`{name}` is defined"
    elif link.verb in (CALLS, EXTENDS) and by:
        yield from (f"`{each}` {link.verb} `{name}`" for each in by if each != name)
    else:
        yield f"code that {link.verb} `{name}`"


def _traced(told: Iterable[_Told], code: dict[str, Record], limit: int) -> Traced:
    """Each sentence once for each project, by the newest code that shows it."""
    newest: dict[tuple[str, str], _Told] = {}
    for each in sorted(told, key=lambda one: (-one.weight, -code[one.code].at)):
        newest.setdefault((each.sentence, code[each.code].scope), each)
    times = [code[each.code].at for each in newest.values()]
    first, span = min(times, default=0), max(max(times, default=0) - min(times, default=0), 1)
    relations = [
        Relation(
            _placed(each, code[each.code]),
            each.verb,
            code[each.code],
            each.weight * (1 - LATEST_SHARE + LATEST_SHARE * (code[each.code].at - first) / span),
        )
        for each in newest.values()
    ]
    relations.sort(key=lambda relation: (-relation.score, -relation.code.at, relation.sentence))
    touched = sorted({r.code.id: r.code for r in relations}.values(), key=lambda c: -c.at)
    sessions = dict.fromkeys(record.session for record in touched if record.session)
    return Traced(relations[:limit], len(relations), list(sessions))


def _placed(told: _Told, code: Record) -> str:
    """With the file that shows it, where it is named."""
    return (
        f"{told.sentence} in {code.name}"
        if code.name and code.name not in told.sentence
        else (told.sentence)
    )


def _dotted(name: str) -> str:
    """As symbols are named, whatever the language: `Cart::total()` is `Cart.total`."""
    return re.sub(r"::|#|->", ".", name.removesuffix("()"))


def _last(name: str) -> str:
    return name.rpartition(".")[2] or name


def _is_file(own: str | None, name: str) -> bool:
    """Whether a path is the one asked for, or ends with it."""
    return own is not None and ends_with(loose_parts(own), names_in(loose_parts(name)))
