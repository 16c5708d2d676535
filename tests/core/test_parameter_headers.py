import base64
from typing import Any

import pytest

from everkept.core.parameter_headers import ParameterHeader, decode_value, find_declared_headers, find_mismatch

TEXT = {"type": "string", "x-mcp-header": "Region"}
NESTED = {"type": "object", "properties": {"place": {"type": "object", "properties": {"r": TEXT}}}}


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_headers_are_found_below_properties() -> None:
    assert find_declared_headers(schema(region=TEXT, other={"type": "string"})) == (
        ParameterHeader("mcp-param-region", ("region",), "string"),
    )
    [nested] = find_declared_headers(NESTED)
    assert nested.path == ("place", "r")
    assert find_declared_headers(schema(x={"type": "string"})) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "object", "x-mcp-header": "Region"},
        schema(a={"type": "string", "x-mcp-header": "not a token"}),
        schema(a={"type": "string", "x-mcp-header": ""}),
        schema(a={"type": "string", "x-mcp-header": 7}),
        schema(a={"type": "number", "x-mcp-header": "A"}),
        schema(a={"type": ["string"], "x-mcp-header": "A"}),
        schema(a={"x-mcp-header": "A"}),
        schema(a=TEXT, b={"type": "string", "x-mcp-header": "REGION"}),
        schema(a={"type": "array", "items": TEXT}),
        schema(a={"anyOf": [TEXT]}),
        schema(a=TEXT) | {"$defs": {"b": TEXT}},
    ],
)
def test_an_invalid_declaration_makes_all_of_them_void(wrong: dict[str, Any]) -> None:
    assert find_declared_headers(wrong) == ()


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("string", "eu", "eu"),
        ("string", "ä b", "=?base64?" + base64.b64encode("ä b".encode()).decode() + "?="),
        ("boolean", True, "true"),
        ("boolean", False, "false"),
        ("integer", 42, "42"),
        ("integer", 42, "42.0"),
        ("integer", 42.0, "42"),
        ("integer", -(2**80), str(-(2**80))),
        ("integer", 4.5, "4.5"),
        ("string", None, None),
        ("string", ["a"], None),
    ],
)
def test_a_header_agrees_with_its_argument(kind: str, value: Any, said: str | None) -> None:
    declared = (ParameterHeader("mcp-param-a", ("a",), kind),)
    headers = {} if said is None else {"mcp-param-a": said}
    assert find_mismatch(declared, {"a": value}, headers, ()) is None


@pytest.mark.parametrize(
    ("kind", "arguments", "headers", "repeated"),
    [
        ("string", {"a": "eu"}, {}, ()),
        ("string", {"a": "eu"}, {"mcp-param-a": "us"}, ()),
        ("string", {"a": "eu"}, {"mcp-param-a": "EU"}, ()),
        ("string", {"a": "eu"}, {"mcp-param-a": "eu"}, {"mcp-param-a"}),
        ("string", {}, {"mcp-param-a": "eu"}, ()),
        ("string", {"a": ["eu"]}, {"mcp-param-a": "eu"}, ()),
        ("string", {"a": "eu"}, {"mcp-param-a": "=?base64?!?="}, ()),
        ("integer", {"a": 42}, {"mcp-param-a": "42.5"}, ()),
        ("integer", {"a": 42}, {"mcp-param-a": "4.2e1"}, ()),
        ("integer", {"a": "42"}, {"mcp-param-a": "42.0"}, ()),
        ("boolean", {"a": True}, {"mcp-param-a": "1"}, ()),
    ],
)
def test_a_header_that_does_not_is_told(kind: str, arguments: Any, headers: dict[str, str], repeated: Any) -> None:
    declared = (ParameterHeader("mcp-param-a", ("a",), kind),)
    assert "mcp-param-a" in str(find_mismatch(declared, arguments, headers, repeated))


@pytest.mark.parametrize("wrong", ["=?base64?!!?=", "=?base64?/w==?=", "=?base64?YR==?="])
def test_a_broken_encoding_says_nothing(wrong: str) -> None:
    assert decode_value(wrong) is None
