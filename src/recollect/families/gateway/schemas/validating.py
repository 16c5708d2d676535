"""Whether values fit a JSON Schema, without ever fetching what it refers to."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from recollect.families.gateway.model import JSON

if TYPE_CHECKING:  # loaded at the first call: a start does without
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

    BestMatch = Callable[[Iterator[ValidationError]], ValidationError | None]

# What the library lets through of references and addresses that are none.
_UNFORESEEN = (AttributeError, TypeError, ValueError)


class NoSchema(Exception):
    """It is no JSON Schema, or one that cannot be followed; the message says why."""


def validator_of(schema: JSON) -> "Validator":
    """Values are checked by the draft that the schema names, else by the newest that it fits.

    Texts are not held to patterns that Python cannot read: those are written for JavaScript, and
    the server has them too.
    """
    try:
        return _validator_of(schema)
    except RecursionError:
        raise NoSchema("it is nested too deeply") from None
    except _UNFORESEEN as error:
        raise NoSchema(str(error)) from None


def first_error(validator: "Validator", value: Any) -> "ValidationError | None":
    """What is most wrong with a value; NoSchema where the schema does not let that be said."""
    import jsonschema.exceptions
    from referencing.exceptions import Unresolvable

    most_wrong = cast("BestMatch", jsonschema.exceptions.best_match)  # pyright: ignore[reportUnknownMemberType]
    try:
        return most_wrong(validator.iter_errors(value))
    except Unresolvable as error:
        raise NoSchema(f'"{error.ref}", which it refers to, is not part of it') from None
    except re.error as error:
        raise NoSchema(f"a pattern in it cannot be read: {error}") from None
    except RecursionError:
        raise NoSchema(
            "it refers to itself without end, or the value is nested too deeply"
        ) from None
    except _UNFORESEEN as error:
        raise NoSchema(f"a reference in it cannot be followed: {error}") from None


def _validator_of(schema: JSON) -> "Validator":
    from jsonschema.exceptions import SchemaError
    from referencing import Registry

    reason = ""
    for draft in _drafts(schema):
        try:
            # Formats are left out: the only one that matters here is that of patterns.
            cast(Any, draft).check_schema(schema, format_checker=None)
        except SchemaError as error:
            place = "/".join(str(step) for step in error.absolute_path)
            reason = reason or (f"{place}: " if place else "") + error.message
        else:
            # An empty registry: the one that is used by default asks the network.
            return draft(schema, registry=Registry())
    raise NoSchema(reason)


@cache
def _drafts_by_age() -> "tuple[type[Validator], ...]":
    from jsonschema import validators

    drafts = (
        validators.Draft202012Validator,
        validators.Draft7Validator,
        validators.Draft4Validator,
    )
    return tuple(_lenient(draft) for draft in drafts)


def _drafts(schema: JSON) -> "tuple[type[Validator], ...]":
    from jsonschema import validators

    if isinstance(schema.get("$schema"), str):
        newest = validators.Draft202012Validator
        return (_lenient(validators.validator_for(schema, default=newest)),)
    return _drafts_by_age()


@cache
def _lenient(draft: "type[Validator]") -> "type[Validator]":
    from jsonschema import validators

    extend = cast(Any, validators.extend)  # pyright: ignore[reportUnknownMemberType]
    return cast("type[Validator]", extend(draft, {"pattern": _pattern}))


def _pattern(
    validator: "Validator", pattern: str, value: Any, _schema: JSON
) -> "Iterator[ValidationError]":
    from jsonschema.exceptions import ValidationError

    if not validator.is_type(value, "string"):
        return
    try:
        fits = re.search(pattern, value) is not None
    except re.error:
        return
    if not fits:
        yield ValidationError(f"{value!r} does not match {pattern!r}")
