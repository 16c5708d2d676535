import json

import pytest

from reading_gateways import HERE, in_tool, refused
from recollect.families.gateway.file.schemas import can_be_written


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
        ('"required": [1]', "the name of a parameter"),
        ('"additionalProperties": "no"', "a schema"),
        ('"$defs": {"a": 1}', "a schema"),
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
