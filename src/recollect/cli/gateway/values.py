"""Arguments of another server's tool as a person types them, read by the tool's JSON Schema."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast

from recollect.cli.parameters import STANDARD_INPUT, standard_input
from recollect.core.text import clipped
from recollect.errors import InvalidInput
from recollect.tools.schema import JSON, nearest

DEEPEST = 16  # schemas inside each other; references may lead in circles
ALTERNATIVES = ("anyOf", "oneOf")
_KINDS = {str: "string", bool: "boolean", dict: "object", list: "array", type(None): "null"}
_PHRASES = {
    "string": "text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "object": "a JSON object",
    "array": "a JSON list",
    "null": "null",
}


class Form:
    """What a schema says of a value, as far as it helps to read what was typed.

    A schema that says nothing of the type takes anything; whether the value is right is for the
    tool to say.
    """

    def __init__(self, schema: Any, root: JSON) -> None:
        self._schema = schema
        self._root = root
        self.kinds = _kinds(schema, root)  # names of types; none where anything goes
        self.choices = _choices(schema, root)  # none where there are others

    @property
    def items(self) -> "Form":
        return Form(next(_items(self._schema, self._root), True), self._root)

    def takes(self, kind: str) -> bool:
        return not self.kinds or kind in self.kinds

    def value_of(self, texts: Sequence[str], name: str) -> Any:
        """A list where the value may be one and several texts, or nothing else, are given."""
        is_list_only = self.kinds == frozenset(["array"])
        if len(texts) == 1 and not (is_list_only and not _is_list(texts[0])):
            return self._one(texts[0], name)
        if not self.takes("array"):
            raise InvalidInput(
                f"`{name}` is given {len(texts)} times, and takes one value.", argument=name
            )
        items = self.items
        return [items.value_of([text], name) for text in texts]

    def _one(self, text: str, name: str) -> Any:
        if text in self.choices:
            return text
        value = _json_or_text(text)
        kind = _kind_of(value)
        if not self.kinds or (kind, value) in [(_kind_of(each), each) for each in self.choices]:
            return value
        if "string" in self.kinds:
            # Only what is written as an object or a list is meant as one.
            return value if kind in ("object", "array") and kind in self.kinds else text
        if kind not in self.kinds and not (kind == "integer" and "number" in self.kinds):
            _refuse(text, name, self.kinds)
        return value


def arguments_from(words: Sequence[str], schema: JSON) -> JSON:
    """From key=value, a JSON object, or `-` for one on standard input; single values go before
    what an object says."""
    whole: JSON = {}
    typed: dict[str, list[str]] = {}
    for word in words:
        if word == STANDARD_INPUT:
            whole |= _object(standard_input(), "What came on standard input")
        elif word.lstrip().startswith("{"):
            whole |= _object(word, repr(clipped(word)))
        else:
            name, separator, value = word.partition("=")
            if not separator:
                raise InvalidInput(
                    f"{clipped(word)!r} is neither key=value nor a JSON object.",
                    hint=_known(properties_of(schema)),
                    value=clipped(word),
                )
            typed.setdefault(name.strip(), []).append(value)
    return whole | {
        name: _form_of(name, schema).value_of(texts, name) for name, texts in typed.items()
    }


def properties_of(schema: JSON) -> dict[str, Any]:
    """Its parameters, those of a referenced schema or of parts that all hold included."""
    found: dict[str, Any] = {}
    for part in _parts(schema, schema):
        properties = part.get("properties")
        if isinstance(properties, dict):
            found |= cast(dict[str, Any], properties)
    return found


def required_of(schema: JSON) -> set[str]:
    """The parameters that every call has to have."""
    found: set[str] = set()
    for part in _parts(schema, schema):
        listed = part.get("required")
        if isinstance(listed, list):
            found |= {name for name in cast(list[Any], listed) if isinstance(name, str)}
    return found


def _form_of(name: str, schema: JSON) -> Form:
    known = properties_of(schema)
    if name in known:
        return Form(known[name], schema)
    parts = _parts(schema, schema)
    others = next((p["additionalProperties"] for p in parts if "additionalProperties" in p), None)
    is_open = others is not None or any("patternProperties" in part for part in parts)
    if others is False or not (is_open or not known):
        # The tool would leave it out without a word.
        close = nearest(name, list(known))
        hint = f"Did you mean `{close}`?" if close else _known(known)
        raise InvalidInput(f"Unknown argument `{clipped(name)}`.", hint=hint, argument=name)
    return Form(others if others is not None else True, schema)


def _known(properties: Mapping[str, Any]) -> str:
    return f"Known: {', '.join(properties)}." if properties else "It takes no arguments."


def _parts(schema: Any, root: JSON, depth: int = 0) -> list[JSON]:
    """A schema, and what holds beside it: what it refers to, and all of a list."""
    if not isinstance(schema, dict) or depth > DEEPEST:
        return []
    part = cast(JSON, schema)
    beside = _list_of(part, "allOf")
    if "$ref" in part:
        beside = [*beside, _referenced(part["$ref"], root)]
    return [part, *(found for each in beside for found in _parts(each, root, depth + 1))]


def _referenced(reference: Any, root: JSON) -> Any:
    """What a reference inside the schema leads to; nothing for any other."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for key in reference.removeprefix("#").strip("/").split("/"):
        if key:
            name = key.replace("~1", "/").replace("~0", "~")
            found = cast(JSON, found).get(name) if isinstance(found, dict) else None
    return found


def _list_of(schema: JSON, key: str) -> list[Any]:
    found = schema.get(key)
    return cast(list[Any], found) if isinstance(found, list) else []


def _kinds(schema: Any, root: JSON, depth: int = 0) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for part in _parts(schema, root, depth):
        for kinds in (_own_kinds(part), *_kinds_of_alternatives(part, root, depth)):
            found = found & kinds if found and kinds else found | kinds
    return found


def _kinds_of_alternatives(part: JSON, root: JSON, depth: int) -> Iterator[frozenset[str]]:
    for key in ALTERNATIVES:
        found = [_kinds(each, root, depth + 1) for each in _list_of(part, key)]
        if all(found):
            yield frozenset[str]().union(*found)


def _own_kinds(part: JSON) -> frozenset[str]:
    named = part.get("type")
    if isinstance(named, str):
        return frozenset([named])
    if isinstance(named, list):
        return frozenset(kind for kind in cast(list[Any], named) if isinstance(kind, str))
    if listed := _own_choices(part):
        return frozenset(_kind_of(choice) for choice in listed)
    if "properties" in part:
        return frozenset(["object"])
    return frozenset(["array"]) if "items" in part else frozenset[str]()


def _choices(schema: Any, root: JSON, depth: int = 0) -> list[Any]:
    for part in _parts(schema, root, depth):
        if listed := _own_choices(part):
            return listed
        for key in ALTERNATIVES:
            found = [_choices(each, root, depth + 1) for each in _list_of(part, key)]
            if found and all(found):
                return [choice for choices in found for choice in choices]
    return []


def _own_choices(part: JSON) -> list[Any]:
    return [part["const"]] if "const" in part else _list_of(part, "enum")


def _items(schema: Any, root: JSON, depth: int = 0) -> Iterator[Any]:
    for part in _parts(schema, root, depth):
        if "items" in part:
            yield part["items"]
        for key in ALTERNATIVES:
            for each in _list_of(part, key):
                yield from _items(each, root, depth + 1)


def _kind_of(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _KINDS[cast(type[Any], type(value))]
    return "integer" if isinstance(value, int) or value.is_integer() else "number"


def _is_list(text: str) -> bool:
    return isinstance(_json_or_text(text), list)


def _json_or_text(text: str) -> Any:
    try:
        return _loads(text)
    except ValueError:
        return text


def _loads(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _object(text: str, what: str) -> JSON:
    value = _json_or_text(text)
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} is no JSON object.", hint='As in {"query": "tea"}.')
    return cast(JSON, value)


def _refuse(text: str, name: str, kinds: frozenset[str]) -> NoReturn:
    allowed = " or ".join(phrase for kind, phrase in _PHRASES.items() if kind in kinds)
    raise InvalidInput(
        f"`{name}` must be {allowed}, not {clipped(text)!r}.", argument=name, value=clipped(text)
    )
