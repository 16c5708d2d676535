"""The arguments of a call, held against the inputSchema of the tool in the gateway's file."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from everkept.core.text import clipped, counted
from everkept.errors import MOST_LISTED, InvalidInput
from everkept.families.gateway.model import JSON
from everkept.families.gateway.naming import likeliest
from everkept.families.gateway.schemas.facts import in_words, kind_of, kinds
from everkept.families.gateway.schemas.root import Root, Steps, TooIntricate, by_name
from everkept.families.gateway.schemas.validating import (
    ALTERNATIVES,
    NOTHING_FITS,
    Mistake,
    first_mistake,
)

MOST_STEPS = 50_000  # in one call: no other is answered meanwhile


def check(given: Mapping[str, Any], schema: JSON) -> None:
    """InvalidInput for what does not fit, in the words of our own parameters.

    What cannot be said in a moment is for the server to say.
    """
    root = Root(schema, Steps(MOST_STEPS))
    try:
        mistake = first_mistake(dict(given), schema, root)
        refusal = None if mistake is None else _refusal(mistake, root)
    except (TooIntricate, RecursionError):  # the latter where the value cannot even be shown
        return
    if refusal is not None:
        raise refusal


def _refusal(mistake: Mistake, root: Root) -> InvalidInput:
    path, keyword = _path(mistake.path), mistake.keyword
    value, wanted = mistake.value, mistake.wanted
    if keyword == "required":
        name = _path([path, wanted])
        return InvalidInput(f"Argument `{name}` is required.", argument=name)
    if keyword == "additionalProperties":
        return _unknown(_path([path, wanted]), wanted, mistake.schema)
    subject, shown = f"`{path}`" if path else "The call", _shown(value)
    if keyword in ("enum", "const"):
        allowed: list[Any] = wanted if keyword == "enum" else [wanted]
        sentence = f"{subject} is {shown}; it must be one of {_listed(allowed)}."
    elif keyword == NOTHING_FITS:
        sentence = f"{subject} cannot be given."
    elif keyword in _LIMITS:
        sentence = f"{subject} {_LIMITS[keyword](value, wanted)}"
    elif keyword in ALTERNATIVES and kind_of(value) in kinds(mistake.schema, root):
        sentence = f"{subject} fits none of its alternatives{_reasons(wanted, root)}."
    else:
        sentence = f"{subject} must be {in_words(kinds(mistake.schema, root))}, not {shown}."
    return InvalidInput(sentence, argument=path, value=shown)


def _reasons(mistakes: list[Mistake], root: Root) -> str:
    """What is wrong with each, as far as a sentence bears it."""
    told = [each for each in mistakes if each.keyword not in ALTERNATIVES][:MOST_LISTED]
    found = dict.fromkeys(_refusal(each, root).message.rstrip(".") for each in told)
    return f": {'; or '.join(found)}" if found else ""


def _unknown(path: str, name: str, schema: JSON) -> InvalidInput:
    known = list(by_name(schema.get("properties")))
    close = likeliest(name, known)
    listed = clipped(", ".join(known[:MOST_LISTED]), 500) or "none"
    hint = f"Did you mean `{close}`?" if close else f"Known: {listed}."
    return InvalidInput(f"Unknown argument `{clipped(path)}`.", hint=hint, argument=clipped(path))


def _listed(allowed: list[Any]) -> str:
    more = f" and {len(allowed) - MOST_LISTED} more" if len(allowed) > MOST_LISTED else ""
    return ", ".join(map(_shown, allowed[:MOST_LISTED])) + more


def _is(limit: str) -> Callable[[Any, Any], str]:
    return lambda value, wanted: f"is {_shown(value)}; it must be {limit} {_shown(wanted)}."


def _has(limit: str, one: str) -> Callable[[Any, Any], str]:
    return lambda value, wanted: f"has {counted(len(value), one)}; it must have {limit} {wanted:,}."


_LIMITS: Mapping[str, Callable[[Any, Any], str]] = {
    "minimum": _is("at least"),
    "maximum": _is("at most"),
    "exclusiveMinimum": _is("more than"),
    "exclusiveMaximum": _is("less than"),
    "multipleOf": _is("a multiple of"),
    "minLength": _has("at least", "character"),
    "maxLength": _has("at most", "character"),
    "minItems": _has("at least", "item"),
    "maxItems": _has("at most", "item"),
    "minProperties": _has("at least", "key"),
    "maxProperties": _has("at most", "key"),
    "uniqueItems": lambda _value, _wanted: "has an item twice; each may be there once.",
}


def _path(steps: Iterable[str | int]) -> str:
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step:
            path += f".{step}" if path else step
    return path


def _shown(value: Any) -> str:
    return clipped(json.dumps(value, ensure_ascii=False, default=str))
