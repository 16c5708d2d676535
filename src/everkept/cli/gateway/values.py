"""Arguments of another server's tool as a person types them, read by the tool's JSON Schema."""

import json
from collections.abc import Sequence
from typing import Any, NoReturn, cast

from everkept.cli.parameters import SPOKEN, STANDARD_INPUT, standard_input
from everkept.core.text import clipped
from everkept.errors import InvalidInput
from everkept.families.gateway.naming import likeliest
from everkept.families.gateway.schemas.facts import (
    KINDS,
    at,
    in_words,
    items,
    kind_of,
    kinds,
    names,
    required,
    values,
)
from everkept.families.gateway.schemas.root import Root, TooIntricate, by_name
from everkept.tools.schema import JSON

_MOST_NAMED = 50


class Form:
    """What a schema says of a value, as far as it helps to read what was typed.

    Whether the value is right is for the tool to say. What is too intricate takes anything.
    """

    def __init__(self, place: Any, root: Root) -> None:
        self._place = place
        self._root = root
        try:
            self.kinds = kinds(place, root)
            self.choices = values(place, root) or []  # none where there are others
        except TooIntricate:
            self.kinds, self.choices = KINDS, []

    @property
    def items(self) -> "Form":
        try:
            return Form(items(self._place, self._root), self._root)
        except TooIntricate:
            return Form(True, self._root)

    @property
    def is_open(self) -> bool:
        """Whether anything goes; so it does where nothing can."""
        return self.kinds in (KINDS, frozenset())

    def is_only(self, kind: str) -> bool:
        return self.kinds == frozenset({kind})

    def takes(self, kind: str) -> bool:
        return self.is_open or kind in self.kinds

    @property
    def keys(self) -> list[str]:
        """The properties of an object that are spoken of."""
        try:
            return names(self._place, self._root)
        except TooIntricate:
            return []

    @property
    def keys_of_items(self) -> list[str]:
        """Of a list that holds objects and nothing else."""
        return self.items.keys if self.is_only("array") and self.items.is_only("object") else []

    def below(self, key: str) -> "Form":
        try:
            return Form(at(self._place, [key], self._root), self._root)
        except TooIntricate:
            return Form(True, self._root)

    def value_of(self, texts: Sequence[str], name: str) -> Any:
        """A list where the value may be one and several texts, or nothing else, are given."""
        if known := self.keys_of_items:
            return self._objects(texts, name, known)
        if len(texts) == 1 and not (self.is_only("array") and not _is_list(texts[0])):
            return self._one(texts[0], name)
        if not self.takes("array"):
            raise InvalidInput(
                f"`{name}` is given {len(texts)} times, and takes one value.", argument=name
            )
        items = self.items
        return [items.value_of([text], name) for text in texts]

    def _objects(self, texts: Sequence[str], name: str, known: Sequence[str]) -> list[Any]:
        """From JSON, `-` for JSON on standard input, and key=value, where a key that is given
        again begins the next object, unless it takes a list."""
        items, found = self.items, list[Any]()
        current: dict[str, list[str]] = {}

        def finish() -> None:
            if current:
                found.append({key: items.below(key).value_of(current[key], key) for key in current})
                current.clear()

        for text in texts:
            key, separator, value = text.partition("=")
            if separator and key in known:
                form = items.below(key)
                if key in current and (form.is_open or not form.takes("array")):
                    finish()
                current.setdefault(key, []).append(value)
            else:
                finish()
                found += self._objects_in(text, name, known)
        finish()
        return found

    def _objects_in(self, text: str, name: str, known: Sequence[str]) -> list[Any]:
        value = _json_or_text(standard_input() if text == STANDARD_INPUT else text)
        if isinstance(value, dict | list):
            return cast(list[Any], value) if isinstance(value, list) else [value]
        raise InvalidInput(
            f"`{name}` is {clipped(text)!r}, which is neither JSON nor key=value.",
            hint=f"Write {known[0]}=…, JSON, or {STANDARD_INPUT} for JSON on standard input; "
            f"known: {clipped(', '.join(known), 200)}.",
            argument=name,
            value=clipped(text),
        )

    def _one(self, text: str, name: str) -> Any:
        if text in self.choices:
            return text
        value = _json_or_text(text)
        kind = kind_of(value)
        if self.is_open or (kind, value) in [(kind_of(each), each) for each in self.choices]:
            return value
        if "string" in self.kinds:
            # Only what is written as an object or a list is meant as one.
            return value if kind in ("object", "array") and kind in self.kinds else text
        if kind not in self.kinds:
            _refuse(text, name, self.kinds)
        return value


class Parameters:
    """What a tool takes, by its schema."""

    def __init__(self, schema: JSON) -> None:
        self._root = Root(schema)
        try:
            self.names = names(schema, self._root)
            self.required = set(required(schema, self._root))
        except TooIntricate:
            self.names, self.required = list(by_name(schema.get("properties"))), set[str]()

    def described(self, name: str) -> Any:
        """The schema of one; False where there is surely none of that name."""
        try:
            return at(self._root.schema, [name], self._root)
        except TooIntricate:
            return True

    def form(self, name: str) -> Form:
        described = self.described(name)
        if described is False:
            # The tool would leave it out without a word.
            close = likeliest(name, self.names)
            hint = f"Did you mean `{close}`?" if close else self.hint
            raise InvalidInput(f"Unknown argument `{clipped(name)}`.", hint=hint, argument=name)
        return Form(described, self._root)

    def meant_by(self, words: Sequence[str]) -> str:
        """The parameter that words without a key are for."""
        if len(self.required) == 1:
            return next(iter(self.required))
        raise InvalidInput(
            f"{clipped(words[0])!r} is neither key=value nor a JSON object.",
            hint=self.hint,
            value=clipped(words[0]),
        )

    @property
    def hint(self) -> str:
        known = clipped(", ".join(self.names[:_MOST_NAMED]), 500)
        return f"Known: {known}." if known else "It takes no arguments."


def arguments_from(words: Sequence[str], schema: JSON) -> JSON:
    """From key=value, a JSON object, or `-` for one on standard input; single values go before
    what an object says. Where the tool requires one argument, words without a key are that."""
    parameters = Parameters(schema)
    whole: JSON = {}
    typed: dict[str, list[str]] = {}
    bare: list[str] = []
    for word in words:
        if word == STANDARD_INPUT:
            whole |= _object(standard_input(), "What came on standard input")
        elif word.lstrip().startswith("{"):
            whole |= _object(word, repr(clipped(word)))
        else:
            name, separator, value = word.partition("=")
            if not separator:
                bare.append(word)
            else:
                typed.setdefault(name.strip(), []).append(value)
    if bare:
        name = parameters.meant_by(bare)
        spoken = name in SPOKEN and parameters.form(name).takes("string")
        typed.setdefault(name, []).extend([" ".join(bare)] if spoken else bare)
    return whole | {
        name: parameters.form(name).value_of(texts, name) for name, texts in typed.items()
    }


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


def _refuse(text: str, name: str, wanted: frozenset[str]) -> NoReturn:
    is_json = bool(wanted & {"object", "array"})
    raise InvalidInput(
        f"`{name}` must be {in_words(wanted)}, not {clipped(text)!r}.",
        hint="Objects and lists are written as JSON." if is_json else None,
        argument=name,
        value=clipped(text),
    )
