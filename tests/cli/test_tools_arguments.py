import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everkept.cli.tools import parse_items
from everkept.errors import InvalidInput
from everkept.families.graph.model import NewEntity

Run = Callable[..., Any]


@pytest.fixture
def bank(everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "shop"
    home.mkdir()
    monkeypatch.chdir(home)
    assert everkept("initialize-memory-bank", ".").status == 0
    return home / "memory-bank"


def test_a_key_given_again_begins_the_next_object() -> None:
    words = ["name=a", "entity_type=x", "observations=1", "observations=2=3", "name=b"]
    assert parse_items(words, NewEntity, "entities") == [
        {"name": "a", "entity_type": "x", "observations": ["1", "2=3"]},
        {"name": "b"},
    ]


def test_what_is_neither_json_nor_a_known_key_is_refused() -> None:
    with pytest.raises(InvalidInput):
        parse_items(["nme=a"], NewEntity, "entities")


def test_the_tools_own_shape_of_json_is_taken_too() -> None:
    for text in ('{"entities": [{"name": "a"}]}', '[{"name": "a"}]', '{"name": "a"}'):
        assert parse_items([text], NewEntity, "entities") == [{"name": "a"}]


def test_what_is_true_or_false_is_a_flag(everkept: Run, bank: Path) -> None:
    (bank / "notes.md").write_text("Cart\ncart\n", encoding="utf-8")

    def found(*flags: str) -> int:
        return len(everkept("search-memory-bank", "cart", *flags, "--json").json["results"])

    assert found("--case-sensitive") == 1
    assert found("--no-case-sensitive") == found() == 2
    plain = everkept("read-memory-bank-file", "notes.md", "--no-include-etag", "--json").json
    assert "etag" not in plain
    assert "etag" in everkept("read-memory-bank-file", "notes.md", "--json").json
    everkept("create-backup")
    (view,) = everkept("list-backups", "--verify", "--json").json["backups"]
    assert view["verified"] == "whole"


def test_the_help_shows_defaults_as_they_are_typed(everkept: Run) -> None:
    page = " ".join(everkept("get-context-digest", "--help").out.split())
    assert "[default: 10]" in page
    assert "(" not in page.partition("[default: ")[2].partition("]")[0]
    assert "[default: yes]" in everkept("read-memory-bank-file", "--help").out


def test_a_content_may_come_from_standard_input(everkept: Run, bank: Path) -> None:
    said = everkept("write-memory-bank-file", "notes.md", "-", stdin="# Notes\n\nGrüße\n")
    assert said.status == 0
    assert (bank / "notes.md").read_bytes() == "# Notes\n\nGrüße\n".encode()
    assert "CONTENT | -" in everkept("write-memory-bank-file", "--help").out


def test_line_ends_of_standard_input_stay_and_other_bytes_are_refused(
    everkept: Run, bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from everkept.cli.main import main

    def typed(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="cp1252"))
        main(["write-memory-bank-file", "notes.md", "-"])

    typed("a\r\né".encode())
    assert (bank / "notes.md").read_bytes() == "a\r\né".encode()
    with pytest.raises(SystemExit) as ended:
        typed(b"\xff")
    assert ended.value.code == 2
    assert (bank / "notes.md").read_bytes() == "a\r\né".encode()
