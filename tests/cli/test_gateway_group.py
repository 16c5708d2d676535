from collections.abc import Callable
from typing import Any

from everkept.families.gateway.draft import build_file_schema

Run = Callable[..., Any]


def test_the_schema_of_the_file_is_printed(everkept: Run) -> None:
    assert everkept("gateway", "schema").json == build_file_schema()


def test_the_group_names_its_commands(everkept: Run) -> None:
    page = everkept("gateway", "--help").out
    for name in ("call", "check", "init", "schema"):
        assert f"\n  {name} " in page
