from collections.abc import Callable
from typing import Any

from recollect.families.gateway.file.file_schema import file_schema

Run = Callable[..., Any]


def test_the_schema_of_the_file_is_printed(recollect: Run) -> None:
    assert recollect("gateway", "schema").json == file_schema()


def test_the_group_names_its_commands(recollect: Run) -> None:
    page = recollect("gateway", "--help").out
    for name in ("call", "check", "init", "schema"):
        assert f"\n  {name} " in page
