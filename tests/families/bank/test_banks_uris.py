import pytest

from everkept.errors import InvalidInput
from everkept.families.bank.banks import build_uri, parse_uri


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("memory-bank://active-context.md", "active-context.md"),
        ("memory-bank://active-context", "active-context.md"),
        ("memory-bank://data.json", "data.json"),
        ("memory-bank://notes.v2", "notes.v2.md"),
        ("memory-bank://README.md/", "README.md"),
        ("memory-bank://my%20notes%20%C3%BC.md", "my notes ü.md"),
        ("memory-bank://graph/graph.md", "graph/graph.md"),
        ("memory-bank://graph.md", "graph.md"),
    ],
)
def test_an_address_names_a_document(uri: str, path: str) -> None:
    assert parse_uri(uri) == path


@pytest.mark.parametrize("path", ["progress.md", "my notes ü#!%.md", "graph/graph.md", "a&b.json"])
def test_each_document_has_an_address_that_leads_back(path: str) -> None:
    assert parse_uri(build_uri(path)) == path
    assert " " not in build_uri(path)


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "/",
        "..",
        "../x.md",
        "..%2Fx.md",
        "%2e%2e%2fx.md",
        "%2Fetc%2Fpasswd",
        "/etc/passwd",
        "graph/graph.jsonl",
        "sub/x.md",
        "C:%5Cx.md",
        "x.md%00",
        "%FF.md",
        ".hidden.md",
        "con.md",
    ],
)
def test_no_address_leads_outside(rest: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid URI format"):
        parse_uri(f"memory-bank://{rest}")
