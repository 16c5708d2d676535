"""Turn types into JSON schemas, and JSON into checked values."""

import difflib
import json
import math
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from everkept.core.text import clip_text, find_forbidden, format_count
from everkept.core.times import parse_time
from everkept.errors import InvalidInput
from everkept.values import MISSING, Value, is_value_type, list_fields

JSON = dict[str, Any]
V = TypeVar("V")
Parse = Callable[[Any, str], Any]  # takes a value and its path, returns the checked value
REQUIRED: Any = object()

_JSON_TYPES: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_UNIONS = (Union, types.UnionType)
_LISTS = (list, tuple, Sequence)
_OBJECTS = (dict, Mapping)
_MAX_NUMBER = 2**53  # readers of JSON and databases differ beyond it
_MAX_DEPTH = 20  # levels of nested objects and lists


class Field(Value):
    """Details of an argument beyond its type."""

    description: str = ""
    name: str | None = None  # name on the wire, if it is not a valid Python name
    aliases: tuple[str, ...] = ()
    max_length: int | None = None  # of a text, or of an object's JSON
    ge: float | None = None
    le: float | None = None
    max_items: int | None = None
    blank: bool = True  # False: text of only whitespace is refused
    one_or_more: bool = False  # a single item is accepted as a list
    moment: bool = False  # ISO 8601 on the wire, microseconds inside
    listed: bool = True  # False: accepted and documented, but not shown in tools/list


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
    def is_optional(self) -> bool:
        """Whether the value may be None. Results omit it then."""
        return _strip_none(self.annotation)[1]


def build_parameter(attribute: str, annotation: Any, default: Any = REQUIRED) -> Parameter:
    bare, field = _unwrap(annotation)
    return Parameter(attribute, field.name or attribute, bare, field, default)


def build_object_schema(parameters: Sequence[Parameter], *, closed: bool = True) -> JSON:
    """Build the JSON schema of an object, without aliases."""
    schema: JSON = {"type": "object", "properties": {p.name: _build_parameter_schema(p) for p in parameters}}
    required = [p.name for p in parameters if p.is_required and not p.is_optional]
    if required:
        schema["required"] = required
    if closed:
        schema["additionalProperties"] = False
    return schema


def build_value_schema(annotation: Any, field: Field | None = None) -> JSON:
    """Build the JSON schema of a value. Objects omit None, so it needs no type."""
    bare, own = _unwrap(annotation)
    field = field or own
    bare, _ = _strip_none(bare)
    if bare is Any:
        return _describe({}, field)
    origin = get_origin(bare)
    if origin in _UNIONS:
        # Only the first form is described; the others are accepted too.
        return build_value_schema(get_args(bare)[0], field)
    if field.moment:
        schema: JSON = {"type": "string", "format": "date-time"}
    elif origin is Literal:
        schema = {"type": "string", "enum": list(get_args(bare))}
    elif origin in _LISTS:
        item = build_value_schema(get_args(bare)[0])
        schema = {"type": "array", "items": item}
        if field.one_or_more:
            schema = {"oneOf": [item, schema]}
    elif origin in _OBJECTS:
        schema = {"type": "object"}
    elif is_value_type(bare):
        # Only the outermost object is closed, because items accept aliases too.
        schema = build_object_schema(list_parameters(cast(type, bare)), closed=False)
    else:
        schema = {"type": _JSON_TYPES[bare]}
    return _describe(schema, field)


@cache
def list_parameters(kind: type) -> tuple[Parameter, ...]:
    """Return the fields of a value type, with their names on the wire."""
    hints = get_type_hints(kind, include_extras=True)

    def default_of(item: Any) -> Any:
        if item.default is not MISSING:
            return item.default
        return item.default_factory() if item.default_factory is not MISSING else REQUIRED

    return tuple(build_parameter(f.name, hints[f.name], default_of(f)) for f in list_fields(kind))


def build_object_parser(parameters: Sequence[Parameter]) -> Parse:
    """Build a function that checks an object and returns its values by attribute name.

    It inspects the types once, not for each object.
    """
    checks = {
        name: (p, build_parser(p.annotation, p.field, p.default))
        for p in parameters
        for name in (p.name, *p.field.aliases)
    }

    def parse(given: Mapping[str, Any], path: str) -> JSON:
        values: JSON = {}
        for name, value in given.items():
            if name not in checks:
                raise _build_unknown_error(name, path, [p.name for p in parameters])
            wanted, check = checks[name]
            if wanted.attribute in values:
                raise InvalidInput(
                    f"Argument `{_join_path(path, wanted.name)}` is given twice.",
                    hint="Pass it once.",
                    argument=_join_path(path, wanted.name),
                )
            values[wanted.attribute] = check(value, _join_path(path, name))
        if len(values) < len(parameters):
            _add_defaults(values, parameters, path)
        return values

    return parse


def _add_defaults(values: JSON, parameters: Sequence[Parameter], path: str) -> None:
    for wanted in parameters:
        if wanted.attribute not in values:
            if wanted.is_required:
                raise InvalidInput(
                    f"Argument `{_join_path(path, wanted.name)}` is required.",
                    hint=f"Pass `{wanted.name}`.",
                    argument=_join_path(path, wanted.name),
                )
            values[wanted.attribute] = wanted.default


@cache
def _build_type_parser(kind: type) -> Parse:
    return build_object_parser(list_parameters(kind))


def build_parser(annotation: Any, field: Field, default: Any = REQUIRED) -> Parse:
    """Build a function that checks a value of that type."""
    bare, optional = _strip_none(annotation)
    check = _build_bare_parser(bare, field)
    if not optional and default is not None:
        return check
    return lambda value, path: None if value is None else check(value, path)


def _build_bare_parser(bare: Any, field: Field) -> Parse:
    if bare is Any:
        return lambda value, _path: value
    origin = get_origin(bare)
    if origin in _UNIONS:
        return _build_union_parser(get_args(bare), field)
    if field.moment:
        return _parse_moment
    if origin is Literal:
        return partial(_parse_choice, get_args(bare))
    if origin in _LISTS:
        return partial(_parse_list, build_parser(*_unwrap(get_args(bare)[0])), field)
    if origin in _OBJECTS:
        return partial(_parse_any_object, field)
    if is_value_type(bare):
        return partial(parse_value, bare)
    return partial(_parse_text, field) if bare is str else partial(_parse_number, bare, field)


def _build_union_parser(members: Sequence[Any], field: Field) -> Parse:
    """Build a function that checks a value by the union member of its form, otherwise by the first one."""
    bares = [_unwrap(member)[0] for member in members]
    checks = [(get_origin(bare) in _LISTS, build_parser(bare, field)) for bare in bares]

    def parse(value: Any, path: str) -> Any:
        is_list = isinstance(value, list)
        fitting = (check for takes_lists, check in checks if takes_lists == is_list)
        return next(fitting, checks[0][1])(value, path)

    return parse


def parse_value(kind: type[V], given: Any, path: str = "") -> V:
    """Build a value of that type from a JSON object, or from a text if the type has a `text_field` for it."""
    if isinstance(given, str) and (text_field := getattr(kind, "text_field", None)):
        given = {text_field: given}
    if not isinstance(given, dict):
        raise _build_type_error("an object", given, path)
    return kind(**_build_type_parser(kind)(given, path))


def to_json(value: Any) -> Any:
    """Return a result as plain JSON values, without fields that are None."""
    convert = _CONVERTERS[type(value)]
    return value if convert is None else convert(value)


def _list_to_json(values: Sequence[Any]) -> list[Any]:
    return [to_json(value) for value in values]


def _object_to_json(value: JSON) -> JSON:
    return {key: to_json(item) for key, item in value.items()}


Convert = Callable[[Any], Any]


class _Converters(dict[type, Convert | None]):
    """Functions that convert values to JSON, built once per type. None if no conversion is needed."""

    def __missing__(self, kind: type) -> Convert | None:
        convert = self[kind] = _build_converter(kind) if is_value_type(kind) else None
        return convert


_CONVERTERS = _Converters({list: _list_to_json, tuple: _list_to_json, dict: _object_to_json})


def _build_converter(kind: type) -> Convert:
    steps = tuple((p.name, p.attribute, _find_converter(p.annotation)) for p in list_parameters(kind))

    def convert(value: Any) -> JSON:
        fields: JSON = {}
        for name, attribute, convert in steps:
            if (item := getattr(value, attribute)) is not None:
                fields[name] = item if convert is None else convert(item)
        return fields

    return convert


def _find_converter(annotation: Any) -> Convert | None:
    """Return the function that converts a field to JSON, or None if none is needed."""
    bare = get_bare_type(annotation)
    origin = get_origin(bare)
    if bare in _JSON_TYPES or origin is Literal:
        return None
    if origin in _LISTS:
        return list if _find_converter(get_args(bare)[0]) is None else _list_to_json
    return to_json


def get_bare_type(annotation: Any) -> Any:
    """Return the type without its Field and without None."""
    bare, _ = _unwrap(annotation)
    return _strip_none(bare)[0]


def find_nearest(name: str, known: Sequence[str]) -> str | None:
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return found[0] if found else None


def _parse_text(field: Field, value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _build_type_error("text", value, path)
    if field.max_length is not None and len(value) > field.max_length:
        raise InvalidInput(
            f"`{path}` is {format_count(len(value), 'character')} long; the limit is {field.max_length:,}.",
            hint="Shorten it, or split it into several.",
            argument=path,
            value=clip_text(value),
            limit=field.max_length,
        )
    if not field.blank and not value.strip():
        raise InvalidInput(
            f"`{path}` is empty.",
            hint="Pass at least one visible character.",
            argument=path,
            value=_format_value(value),
        )
    forbidden = find_forbidden(value)
    if forbidden is not None:
        raise InvalidInput(
            f"`{path}` contains U+{ord(forbidden):04X}, which cannot be stored.",
            hint="Remove that character.",
            argument=path,
            value=ascii(clip_text(value)),
        )
    return value


def _parse_number(kind: Any, field: Field, value: Any, path: str) -> Any:
    # Python counts True as an int, but a caller that passes it made a mistake.
    if kind is bool:
        if not isinstance(value, bool):
            raise _build_type_error("true or false", value, path)
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _build_type_error("a whole number" if kind is int else "a number", value, path)
    if isinstance(value, float) and not math.isfinite(value):
        raise _build_type_error("a finite number", value, path)
    if kind is int:
        if isinstance(value, float) and not value.is_integer():
            raise _build_type_error("a whole number", value, path)
        value = int(value)
        if abs(value) > _MAX_NUMBER:
            raise _build_type_error(f"a whole number of at most {_MAX_NUMBER:,}", value, path)
    below = field.ge is not None and value < field.ge
    above = field.le is not None and value > field.le
    if below or above:
        raise InvalidInput(
            f"`{path}` is {value}; it must be " + (f"at least {field.ge}." if below else f"at most {field.le}."),
            argument=path,
            value=value,
        )
    return value


def _parse_moment(value: Any, path: str) -> int:
    if not isinstance(value, str):
        raise _build_type_error("a time as text", value, path)
    try:
        return parse_time(value.strip())
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"`{path}` is {_format_value(value)}, which is not a date or time.",
            hint="Use 2026-02-20 or 2026-02-20T14:30:00Z. A time without a zone is UTC.",
            argument=path,
            value=_format_value(value),
        ) from None


def _parse_any_object(field: Field, value: Any, path: str) -> JSON:
    """Check that an object of any form can be stored."""
    if not isinstance(value, dict):
        raise _build_type_error("an object", value, path)
    _check_json(value, path)
    size = len(json.dumps(value, ensure_ascii=False))
    if field.max_length is not None and size > field.max_length:
        raise InvalidInput(
            f"`{path}` is {format_count(size, 'character')} long as JSON; the limit is {field.max_length:,}.",
            hint="Shorten it.",
            argument=path,
            limit=field.max_length,
        )
    return cast(JSON, value)


def _check_json(value: Any, path: str, depth: int = 0) -> None:
    if depth > _MAX_DEPTH:
        raise InvalidInput(f"`{path}` must be nested at most {_MAX_DEPTH} levels deep.", argument=clip_text(path))
    if isinstance(value, dict):
        for name, item in cast(JSON, value).items():
            _parse_text(Field(), name, clip_text(path))
            _check_json(item, _join_path(path, clip_text(name)), depth + 1)
    elif isinstance(value, list):
        for i, item in enumerate(cast(list[Any], value)):
            _check_json(item, f"{path}[{i}]", depth + 1)
    elif isinstance(value, str):
        _parse_text(Field(), value, path)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _build_type_error("a finite number", value, path)


def _parse_list(check: Parse, field: Field, value: Any, path: str) -> list[Any]:
    if field.one_or_more and not isinstance(value, list):
        return [check(value, path)]
    if not isinstance(value, list):
        raise _build_type_error("a list", value, path)
    items = cast(list[Any], value)
    if field.max_items is not None and len(items) > field.max_items:
        raise InvalidInput(
            f"`{path}` has {format_count(len(items), 'item')}; the limit is {field.max_items:,} per call.",
            hint="Split it into several calls.",
            argument=path,
            limit=field.max_items,
        )
    return [check(entry, f"{path}[{i}]") for i, entry in enumerate(items)]


def _parse_choice(allowed: Sequence[Any], value: Any, path: str) -> Any:
    if value in allowed and isinstance(value, str):
        return value
    listed = ", ".join(str(choice) for choice in allowed)
    raise InvalidInput(
        f"`{path}` is {_format_value(value)}; it must be one of {listed}.",
        argument=path,
        value=_format_value(value),
        allowed=list(allowed),
    )


def _build_type_error(expected: str, value: Any, path: str) -> InvalidInput:
    return InvalidInput(
        f"`{path}` must be {expected}, not {_format_value(value)}.", argument=path, value=_format_value(value)
    )


def _build_unknown_error(name: str, path: str, known: Sequence[str]) -> InvalidInput:
    close = find_nearest(name, known)
    hint = f"Did you mean `{close}`?" if close else f"Known: {', '.join(known) or 'none'}."
    shown = clip_text(_join_path(path, name))
    return InvalidInput(f"Unknown argument `{shown}`.", hint=hint, argument=shown)


def _format_value(value: Any) -> str:
    return clip_text(json.dumps(value, ensure_ascii=False, default=str))


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _build_parameter_schema(item: Parameter) -> JSON:
    schema = build_value_schema(item.annotation, item.field)
    if not item.is_required and item.default is not None:
        schema["default"] = to_json(item.default)
    return schema


def _describe(schema: JSON, field: Field) -> JSON:
    # Lengths are checked but not listed: errors name them, and they are rarely reached.
    limits = {"minimum": field.ge, "maximum": field.le}
    if field.description:
        schema["description"] = field.description
    return schema | {key: limit for key, limit in limits.items() if limit is not None}


def _unwrap(annotation: Any) -> tuple[Any, Field]:
    """Return the bare type and its Field, also for `T | None` around an annotated type."""
    bare, optional = _strip_none(annotation)
    if get_origin(bare) is Annotated:
        inner, *marks = get_args(bare)
        field = next((mark for mark in marks if isinstance(mark, Field)), Field())
        return (inner | None if optional else inner), field
    return annotation, Field()


def _strip_none(annotation: Any) -> tuple[Any, bool]:
    if get_origin(annotation) in _UNIONS:
        kept = tuple(arg for arg in get_args(annotation) if arg is not type(None))
        if len(kept) < len(get_args(annotation)):
            return Union[kept], True  # noqa: UP007 - of as many as there are
    return annotation, False
