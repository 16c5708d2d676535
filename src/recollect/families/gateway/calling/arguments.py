"""The arguments of a call, held against the inputSchema of the tool in the gateway's file."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from recollect.core.text import clipped, counted
from recollect.errors import InvalidInput
from recollect.families.gateway.model import JSON
from recollect.families.gateway.schemas.facts import in_words, kinds
from recollect.families.gateway.schemas.validating import NoSchema, first_error, validator_of
from recollect.tools.schema import nearest

if TYPE_CHECKING:  # loaded at the first call
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

_LONGEST_REASON = 200  # characters


class Arguments:
    """Checks what calls of one tool give. The schema is looked at when the first one comes."""

    def __init__(self, tool: str, schema: JSON) -> None:
        self._tool = tool
        self._schema = schema
        self._validator: Validator | None = None

    def check(self, given: Mapping[str, Any]) -> None:
        """InvalidInput for what does not fit, in the words of our own parameters."""
        try:
            if self._validator is None:
                self._validator = validator_of(self._schema)
            error = first_error(self._validator, dict(given))
        except NoSchema as reason:
            raise InvalidInput(
                f'The inputSchema of "{self._tool}" cannot be used: '
                f"{clipped(str(reason), _LONGEST_REASON)}.",
                hint="Mend it in the gateway's file; `recollect gateway check` shows where it is.",
                tool=self._tool,
            ) from None
        if error is not None:
            raise _refusal(error, self._schema)


def _refusal(error: "ValidationError", root: JSON) -> InvalidInput:
    path = _path(cast(Iterable[str | int], error.absolute_path))
    keyword = str(error.validator)
    schema = error.schema if isinstance(error.schema, dict) else {}
    value, wanted = cast(Any, error.instance), cast(Any, error.validator_value)
    if keyword == "required":
        return _missing(path, value, wanted)
    if keyword == "additionalProperties":
        return _unknown(path, value, schema)
    subject, shown = f"`{path}`" if path else "The call", _shown(value)
    if keyword in ("type", "anyOf", "oneOf"):
        sentence = f"{subject} must be {in_words(kinds(schema, root))}, not {shown}."
    elif keyword in ("enum", "const"):
        allowed: list[Any] = wanted if keyword == "enum" else [wanted]
        sentence = f"{subject} is {shown}; it must be one of {', '.join(map(_shown, allowed))}."
    elif keyword in _LIMITS:
        sentence = f"{subject} {_LIMITS[keyword](value, wanted)}"
    else:
        reason = clipped(error.message, _LONGEST_REASON)
        sentence = f"{subject} does not fit the tool's inputSchema: {reason}."
    return InvalidInput(sentence, argument=path, value=shown)


def _missing(path: str, value: JSON, wanted: list[str]) -> InvalidInput:
    name = _path([path, next(name for name in wanted if name not in value)])
    return InvalidInput(f"Argument `{name}` is required.", argument=name)


def _unknown(path: str, value: JSON, schema: JSON) -> InvalidInput:
    known = list(cast(JSON, schema.get("properties", {})))
    name = next(name for name in value if name not in known)
    close = nearest(name, known)
    hint = f"Did you mean `{close}`?" if close else f"Known: {', '.join(known) or 'none'}."
    shown = clipped(_path([path, name]))
    return InvalidInput(f"Unknown argument `{shown}`.", hint=hint, argument=shown)


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
    "pattern": _is("text that matches"),
    "minLength": _has("at least", "character"),
    "maxLength": _has("at most", "character"),
    "minItems": _has("at least", "item"),
    "maxItems": _has("at most", "item"),
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
