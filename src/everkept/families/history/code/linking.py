"""Code and the symbols it speaks of, as records and links."""

from collections.abc import Mapping
from typing import Any

from everkept.core.records import Link, Record
from everkept.core.text import digest
from everkept.families.history.code.outlines import Outline
from everkept.families.history.model import CALLS, DEFINES, EXTENDS, IMPORTS, SYMBOL, symbol_id

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
