"""The short forms of a tool's schemas, for tools/list: every client keeps them in its context.

The full schemas stay the contract: validation, the reference pages and the commands use them.
"""

from collections.abc import Sequence
from typing import cast

from everkept.tools.schema import JSON, Parameter, build_object_schema

# Descriptions state these, and the checks of a call name them in its error.
_SAID_IN_WORDS = {"default", "minimum", "maximum", "format"}
_ERROR_FORM: JSON = {"required": ["error"]}  # what every error envelope has


def shorten_input_schema(parameters: Sequence[Parameter]) -> JSON:
    """Return the schema of the listed parameters, without bounds, defaults and second forms."""
    listed = [parameter for parameter in parameters if parameter.field.listed]
    return _shorten_input(build_object_schema(listed, closed=False))


def _shorten_input(schema: JSON, *, is_item: bool = False) -> JSON:
    if "oneOf" in schema:  # one item, or a list of them: the list says both
        schema = {**schema, **schema["oneOf"][-1]}
    short = {key: value for key, value in schema.items() if key not in _SAID_IN_WORDS and key != "oneOf"}
    if "properties" in short:
        properties = cast(JSON, short["properties"])
        short["properties"] = {name: _shorten_input(inner) for name, inner in properties.items()}
        if is_item and len(short.get("required", ())) == len(properties):
            del short["required"]
    if "items" in short:
        short["items"] = _shorten_input(cast(JSON, short["items"]), is_item=True)
    return short


def shorten_output_schema(full: JSON) -> JSON:
    """Return the fields of an answer with their types.

    Optional fields show only their type, inner objects only the fields they always have, and
    objects inside those only that they are objects. So no definition occurs twice.
    """
    answer = cast(JSON, full["anyOf"][0])
    always = answer.get("required", ())
    fields = cast(JSON, answer["properties"])
    short: JSON = {
        "type": "object",
        "properties": {
            name: _shorten_output(field) if name in always else _keep_type(field) for name, field in fields.items()
        },
    }
    return short | {"anyOf": [{"required": always}, _ERROR_FORM]} if always else short


def _shorten_output(schema: JSON) -> JSON:
    if "properties" in schema:
        properties = cast(JSON, schema["properties"])
        always = schema.get("required", properties)
        return {"type": "object", "properties": {name: _keep_type(properties[name]) for name in always}}
    if "properties" in schema.get("items", {}):
        return {"type": "array", "items": _shorten_output(cast(JSON, schema["items"]))}
    return _keep_type(schema)


def _keep_type(schema: JSON) -> JSON:
    return {"type": schema["type"]} if "type" in schema else {}
