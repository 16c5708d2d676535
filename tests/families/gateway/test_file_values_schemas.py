import json
from pathlib import PurePath

import pytest

from everkept.families.gateway.file_reader import parse_file
from everkept.families.gateway.file_values import can_be_written
from gateway_files import HERE, in_tool, refused


@pytest.mark.parametrize(
    ("keyword", "word"),
    [
        ('"properties": []', "an object"),
        ('"properties": {"a": "string"}', "a schema"),
        ('"properties": {"a": {"type": "text"}}', '"text"'),
        ('"properties": {"a": {"type": ["string", "nul"]}}', '"nul"'),
        ('"properties": {"a": {"type": 1}}', "one of array"),
        ('"properties": {"a": {"enum": "b"}}', "a list"),
        ('"properties": {"a": {"items": {"type": "x"}}}', '"x"'),
        ('"properties": {"a": {"items": [{"type": "x"}]}}', '"x"'),
        ('"properties": {"a": {"anyOf": {"type": "string"}}}', "a list"),
        ('"properties": {"a": {"anyOf": [{"type": "x"}]}}', '"x"'),
        ('"required": "a"', "a list"),
        ('"required": [1]', "parameter names"),
        ('"additionalProperties": "no"', "a schema"),
        ('"$defs": {"a": 1}', "a schema"),
        ('"properties": {"a": {"type": []}}', "one of array"),
        ('"properties": {"a": {"minimum": "5"}}', "a number"),
        ('"properties": {"a": {"exclusiveMinimum": "5"}}', "a number"),
        ('"properties": {"a": {"multipleOf": 0}}', "above 0"),
        ('"properties": {"a": {"minLength": -1}}', "whole number"),
        ('"properties": {"a": {"maxItems": 1.5}}', "whole number"),
        ('"properties": {"a": {"pattern": 5}}', "a text"),
        ('"properties": {"a": {"description": {}}}', "a text"),
        ('"properties": {"a": {"uniqueItems": 1}}', "true or false"),
        ('"properties": {"a": {"$ref": 5}}', "a text"),
        ('"properties": {"a": {"$ref": "#/$defs/q"}}', '"#/$defs/q"'),
        ('"properties": {"a": {"$ref": "#/$defs/q"}}, "$defs": {"p": {}}', "no schema"),
        ('"properties": {"a": {"$ref": "#/required"}}, "required": ["a"]', "no schema"),
        ('"$ref": "#/properties/b/c"', "no schema"),
        (f'"$ref": "#{"/a" * 400_000}"', "no schema"),
    ],
)
def test_what_is_no_schema_is_refused(keyword: str, word: str) -> None:
    body = f'\n"inputSchema": {{"type": "object", {keyword}}}, {HERE}'
    assert word in refused(in_tool(body, without="inputSchema"))
    body = f'\n"outputSchema": {{"type": "object", {keyword}}}, {HERE}'
    assert word in refused(in_tool(body))
    assert not can_be_written(json.loads(f'{{"type": "object", {keyword}}}'))


def test_what_only_looks_like_a_schema_is_left_alone() -> None:
    values = '"default": {"type": "x"}, "enum": [{"type": "x"}], "const": {"properties": 1}'
    body = f'\n"inputSchema": {{"type": "object", "properties": {{"q": {{{values}}}}}}},'
    text = in_tool(body, without="inputSchema").replace('"find"', f'"a b" {HERE}\n')
    assert '"a b"' in refused(text)
    assert can_be_written(json.loads(f"{{{values}}}"))


@pytest.mark.parametrize(
    "keywords",
    [
        '"properties": {"q": {"$ref": "#"}, "n": {"$ref": "#/$defs/a~1b"}}, "$defs": {"a/b": {}}',
        '"properties": {"q": {"exclusiveMinimum": true, "minimum": 1, "maxLength": 5.0}, "n": {}}',
        # A part with an `$id` is a schema of its own.
        '"properties": {"q": {"$id": "q", "$ref": "#/$defs/x", "$defs": {"x": {}}}, "n": {}}',
        '"properties": {"q": {"$ref": "#/$defs/x"}, "n": {}}, "$defs": {"x": true}',
    ],
)
def test_what_a_schema_may_say_is_read_and_can_be_written(keywords: str) -> None:
    body = f'\n"inputSchema": {{"type": "object", {keywords}}},'
    found = parse_file(in_tool(body, without="inputSchema"), PurePath("/etc"))
    assert found.problems == []
    assert can_be_written(json.loads(f'{{"type": "object", {keywords}}}'))


@pytest.mark.parametrize("reference", ["https://example.org/schema.json", "other.json", "#anchor"])
def test_a_reference_to_elsewhere_is_warned_of(reference: str) -> None:
    schema = f'"properties": {{"q": {{}}, "n": {{\n"$ref": "{reference}" {HERE}\n}}}}'
    text = in_tool(f'\n"inputSchema": {{"type": "object", {schema}}},', without="inputSchema")
    mapped = text.replace('{"q": "query"}', '{"q": "query", "n": "n"}')
    found = parse_file(mapped, PurePath("/etc"))
    (warning,) = found.warnings
    assert found.problems == []
    assert mapped.splitlines()[warning.line - 1].endswith(HERE)
    assert reference in warning.message
