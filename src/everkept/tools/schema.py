"""Types become JSON schemas, and JSON becomes checked values, with errors a caller can act on."""

import difflib
import json
import math
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from everkept.core.text import clipped, forbidden_in_text
from everkept.core.times import parsed
from everkept.errors import InvalidInput
from everkept.values import MISSING, Value, fields, is_value_type

JSON = dict[str, Any]
V = TypeVar("V")
Parse = Callable[[Any, str], Any]  # a value and where it is, to the checked value
REQUIRED: Any = object()

_JSON_TYPES: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_UNIONS = (Union, types.UnionType)
_LISTS = (list, tuple, Sequence)
_OBJECTS = (dict, Mapping)
_LARGEST = 2**53  # past it, JSON's readers differ, and a database has no room for all
_DEEPEST = 20  # objects and lists inside each other, where any JSON is taken


class Field(Value):
    """What a type alone does not say about an argument."""

    description: str = ""
    name: str | None = None  # on the wire, where it is no Python name
    aliases: tuple[str, ...] = ()
    max_length: int | None = None  # characters of a text; of an object's JSON
    ge: float | None = None
    le: float | None = None
    max_items: int | None = None
    blank: bool = True  # False: text of blanks alone is refused
    one_or_more: bool = False  # a list that may be given as its only item
    moment: bool = False  # ISO 8601 on the wire, microseconds inside


class Parameter(Value):
    """A named value of an object or of a tool."""

    attribute: str
    name: str
    annotation: Any
    field: Field
    default: Any = REQUIRED

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def may_be_none(self) -> bool:
        """Then it is left out of an answer where it is."""
        return _without_none(self.annotation)[1]


def parameter(attribute: str, annotation: Any, default: Any = REQUIRED) -> Parameter:
    bare, field = _unwrapped(annotation)
    return Parameter(attribute, field.name or attribute, bare, field, default)


def object_schema(parameters: Sequence[Parameter], *, closed: bool = True) -> JSON:
    """The JSON schema of an object; aliases are accepted but not advertised."""
    schema: JSON = {
        "type": "object",
        "properties": {p.name: _parameter_schema(p) for p in parameters},
    }
    required = [p.name for p in parameters if p.is_required and not p.may_be_none]
    if required:
        schema["required"] = required
    if closed:
        schema["additionalProperties"] = False
    return schema


def value_schema(annotation: Any, field: Field | None = None) -> JSON:
    """The JSON schema of a value; a None is left out of objects, so it needs no type."""
    bare, own = _unwrapped(annotation)
    field = field or own
    bare, _ = _without_none(bare)
    if bare is Any:
        return _described({}, field)
    origin = get_origin(bare)
    if origin in _UNIONS:
        # One form is advertised; the others are accepted, as aliases are.
        return value_schema(get_args(bare)[0], field)
    if field.moment:
        schema: JSON = {"type": "string", "format": "date-time"}
    elif origin is Literal:
        schema = {"type": "string", "enum": list(get_args(bare))}
    elif origin in _LISTS:
        item = value_schema(get_args(bare)[0])
        schema = {"type": "array", "items": item}
        if field.one_or_more:
            schema = {"oneOf": [item, schema]}
    elif origin in _OBJECTS:
        schema = {"type": "object"}
    elif is_value_type(bare):
        # Only the outermost object is declared closed: an item's aliases are accepted too, and
        # the keyword would stand in every client's context once per level.
        schema = object_schema(parameters_of(cast(type, bare)), closed=False)
    else:
        schema = {"type": _JSON_TYPES[bare]}
    return _described(schema, field)


@cache
def parameters_of(kind: type) -> tuple[Parameter, ...]:
    """The fields of a value type, as they stand on the wire."""
    hints = get_type_hints(kind, include_extras=True)

    def default_of(item: Any) -> Any:
        if item.default is not MISSING:
            return item.default
        return item.default_factory() if item.default_factory is not MISSING else REQUIRED

    return tuple(parameter(f.name, hints[f.name], default_of(f)) for f in fields(kind))


def object_parser(parameters: Sequence[Parameter]) -> Parse:
    """Return what checks an object and gives its values by attribute name.

    The types are looked at now, and not again for each object.
    """
    checks = {
        name: (p, parser(p.annotation, p.field, p.default))
        for p in parameters
        for name in (p.name, *p.field.aliases)
    }

    def parse(given: Mapping[str, Any], path: str) -> JSON:
        values: JSON = {}
        for name, value in given.items():
            if name not in checks:
                raise _unknown(name, path, [p.name for p in parameters])
            wanted, check = checks[name]
            if wanted.attribute in values:
                raise InvalidInput(
                    f"Argument `{_at(path, wanted.name)}` is given twice.",
                    argument=_at(path, wanted.name),
                )
            values[wanted.attribute] = check(value, _at(path, name))
        if len(values) < len(parameters):
            _add_defaults(values, parameters, path)
        return values

    return parse


def _add_defaults(values: JSON, parameters: Sequence[Parameter], path: str) -> None:
    for wanted in parameters:
        if wanted.attribute not in values:
            if wanted.is_required:
                raise InvalidInput(
                    f"Argument `{_at(path, wanted.name)}` is required.",
                    argument=_at(path, wanted.name),
                )
            values[wanted.attribute] = wanted.default


@cache
def _parser_of(kind: type) -> Parse:
    return object_parser(parameters_of(kind))


def parser(annotation: Any, field: Field, default: Any = REQUIRED) -> Parse:
    """Return what checks a value of that type."""
    bare, optional = _without_none(annotation)
    check = _parser(bare, field)
    if not optional and default is not None:
        return check
    return lambda value, path: None if value is None else check(value, path)


def _parser(bare: Any, field: Field) -> Parse:
    if bare is Any:
        return lambda value, _path: value
    origin = get_origin(bare)
    if origin in _UNIONS:
        return _union_parser(get_args(bare), field)
    if field.moment:
        return _moment
    if origin is Literal:
        return partial(_one_of, get_args(bare))
    if origin in _LISTS:
        return partial(_list, parser(*_unwrapped(get_args(bare)[0])), field)
    if origin in _OBJECTS:
        return partial(_any_object, field)
    if is_value_type(bare):
        return partial(parse_value, bare)
    return partial(_text, field) if bare is str else partial(_number, bare, field)


def _union_parser(members: Sequence[Any], field: Field) -> Parse:
    """Return what checks by the member of the value's form, or by the first if there is none."""
    bares = [_unwrapped(member)[0] for member in members]
    checks = [(get_origin(bare) in _LISTS, parser(bare, field)) for bare in bares]

    def parse(value: Any, path: str) -> Any:
        is_list = isinstance(value, list)
        fitting = (check for takes_lists, check in checks if takes_lists == is_list)
        return next(fitting, checks[0][1])(value, path)

    return parse


def parse_value(kind: type[V], given: Any, path: str = "") -> V:
    """Return the value of that type that an object of JSON describes."""
    if not isinstance(given, dict):
        raise _wrong("an object", given, path)
    return kind(**_parser_of(kind)(given, path))


def to_json(value: Any) -> Any:
    """Return a result as plain JSON values, without the fields that are None."""
    convert = _CONVERTERS[type(value)]
    return value if convert is None else convert(value)


def _list_to_json(values: Sequence[Any]) -> list[Any]:
    return [to_json(value) for value in values]


def _object_to_json(value: JSON) -> JSON:
    return {key: to_json(item) for key, item in value.items()}


Convert = Callable[[Any], Any]


class _Converters(dict[type, Convert | None]):
    """How values of a type become JSON, found out once for each; None if they are JSON."""

    def __missing__(self, kind: type) -> Convert | None:
        convert = self[kind] = _converter(kind) if is_value_type(kind) else None
        return convert


_CONVERTERS = _Converters({list: _list_to_json, tuple: _list_to_json, dict: _object_to_json})


def _converter(kind: type) -> Convert:
    steps = tuple((p.name, p.attribute, _convert_of(p.annotation)) for p in parameters_of(kind))

    def convert(value: Any) -> JSON:
        fields: JSON = {}
        for name, attribute, convert in steps:
            if (item := getattr(value, attribute)) is not None:
                fields[name] = item if convert is None else convert(item)
        return fields

    return convert


def _convert_of(annotation: Any) -> Convert | None:
    """Return how a field becomes JSON: None if its type alone says that it is."""
    bare = bare_type(annotation)
    origin = get_origin(bare)
    if bare in _JSON_TYPES or origin is Literal:
        return None
    if origin in _LISTS:
        return list if _convert_of(get_args(bare)[0]) is None else _list_to_json
    return to_json


def bare_type(annotation: Any) -> Any:
    """The type alone, without its Field and without None."""
    bare, _ = _unwrapped(annotation)
    return _without_none(bare)[0]


def nearest(name: str, known: Sequence[str]) -> str | None:
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return found[0] if found else None


def _text(field: Field, value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong("text", value, path)
    if field.max_length is not None and len(value) > field.max_length:
        raise InvalidInput(
            f"`{path}` has {len(value):,} characters; at most {field.max_length:,} are allowed.",
            argument=path,
            value=clipped(value),
            limit=field.max_length,
        )
    if not field.blank and not value.strip():
        raise InvalidInput(
            f"`{path}` is {'blank' if value else 'empty'}.", argument=path, value=_shown(value)
        )
    forbidden = forbidden_in_text(value)
    if forbidden is not None:
        raise InvalidInput(
            f"`{path}` holds the character U+{ord(forbidden):04X}, which cannot be stored.",
            argument=path,
            value=ascii(clipped(value)),
        )
    return value


def _number(kind: Any, field: Field, value: Any, path: str) -> Any:
    # True is an int to Python; to a caller it is a mistake.
    if kind is bool:
        if not isinstance(value, bool):
            raise _wrong("true or false", value, path)
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong("a whole number" if kind is int else "a number", value, path)
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong("a finite number", value, path)
    if kind is int:
        if isinstance(value, float) and not value.is_integer():
            raise _wrong("a whole number", value, path)
        value = int(value)
        if abs(value) > _LARGEST:
            raise _wrong(f"a whole number of at most {_LARGEST:,}", value, path)
    below = field.ge is not None and value < field.ge
    above = field.le is not None and value > field.le
    if below or above:
        raise InvalidInput(
            f"`{path}` is {value}; it must be "
            + (f"at least {field.ge}." if below else f"at most {field.le}."),
            argument=path,
            value=value,
        )
    return value


def _moment(value: Any, path: str) -> int:
    if not isinstance(value, str):
        raise _wrong("a time as text", value, path)
    try:
        return parsed(value.strip())
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"`{path}` is {_shown(value)}, which is no time.",
            hint="Write 2026-02-20, or 2026-02-20T14:30:00Z; without a zone it is UTC.",
            argument=path,
            value=_shown(value),
        ) from None


def _any_object(field: Field, value: Any, path: str) -> JSON:
    """Whatever JSON an object may hold, as long as it can be stored."""
    if not isinstance(value, dict):
        raise _wrong("an object", value, path)
    _check_json(value, path)
    size = len(json.dumps(value, ensure_ascii=False))
    if field.max_length is not None and size > field.max_length:
        raise InvalidInput(
            f"`{path}` has {size:,} characters as JSON; at most {field.max_length:,} are allowed.",
            argument=path,
            limit=field.max_length,
        )
    return cast(JSON, value)


def _check_json(value: Any, path: str, depth: int = 0) -> None:
    if depth > _DEEPEST:
        raise InvalidInput(
            f"`{path}` is nested more than {_DEEPEST} levels deep.", argument=clipped(path)
        )
    if isinstance(value, dict):
        for name, item in cast(JSON, value).items():
            _text(Field(), name, clipped(path))
            _check_json(item, _at(path, clipped(name)), depth + 1)
    elif isinstance(value, list):
        for i, item in enumerate(cast(list[Any], value)):
            _check_json(item, f"{path}[{i}]", depth + 1)
    elif isinstance(value, str):
        _text(Field(), value, path)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _wrong("a finite number", value, path)


def _list(check: Parse, field: Field, value: Any, path: str) -> list[Any]:
    if field.one_or_more and not isinstance(value, list):
        value = [value]
    if not isinstance(value, list):
        raise _wrong("a list", value, path)
    items = cast(list[Any], value)
    if field.max_items is not None and len(items) > field.max_items:
        raise InvalidInput(
            f"`{path}` has {len(items):,} items; at most {field.max_items:,} are allowed in one "
            "call.",
            hint="Send them in several calls.",
            argument=path,
            limit=field.max_items,
        )
    return [check(entry, f"{path}[{i}]") for i, entry in enumerate(items)]


def _one_of(allowed: Sequence[Any], value: Any, path: str) -> Any:
    if value in allowed and isinstance(value, str):
        return value
    listed = ", ".join(str(choice) for choice in allowed)
    raise InvalidInput(
        f"`{path}` is {_shown(value)}; it must be one of {listed}.",
        argument=path,
        value=_shown(value),
        allowed=list(allowed),
    )


def _wrong(expected: str, value: Any, path: str) -> InvalidInput:
    return InvalidInput(
        f"`{path}` must be {expected}, not {_shown(value)}.", argument=path, value=_shown(value)
    )


def _unknown(name: str, path: str, known: Sequence[str]) -> InvalidInput:
    close = nearest(name, known)
    hint = f"Did you mean `{close}`?" if close else f"Known: {', '.join(known) or 'none'}."
    shown = clipped(_at(path, name))
    return InvalidInput(f"Unknown argument `{shown}`.", hint=hint, argument=shown)


def _shown(value: Any) -> str:
    return clipped(json.dumps(value, ensure_ascii=False, default=str))


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _parameter_schema(item: Parameter) -> JSON:
    schema = value_schema(item.annotation, item.field)
    if not item.is_required and item.default is not None:
        schema["default"] = to_json(item.default)
    return schema


def _described(schema: JSON, field: Field) -> JSON:
    # Lengths are checked but not advertised: they stand in every client's context, and an
    # assistant meets them so rarely that the error which names them is enough.
    limits = {"minimum": field.ge, "maximum": field.le}
    if field.description:
        schema["description"] = field.description
    return schema | {key: limit for key, limit in limits.items() if limit is not None}


def _unwrapped(annotation: Any) -> tuple[Any, Field]:
    """The bare type and its Field; `T | None` around an annotated type keeps the Field."""
    bare, optional = _without_none(annotation)
    if get_origin(bare) is Annotated:
        inner, *marks = get_args(bare)
        field = next((mark for mark in marks if isinstance(mark, Field)), Field())
        return (inner | None if optional else inner), field
    return annotation, Field()


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) in _UNIONS:
        kept = tuple(arg for arg in get_args(annotation) if arg is not type(None))
        if len(kept) < len(get_args(annotation)):
            return Union[kept], True  # noqa: UP007 - of as many as there are
    return annotation, False
