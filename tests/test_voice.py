"""The words that people and models read keep to the project's rules."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import voice
from everkept.app.app import App
from everkept.cli.main import COMMANDS, JOINED_LINES, cli
from everkept.settings import read_settings
from everkept.transports.connection import describe_tool

CHARACTERS_PER_TOKEN = 4
MAX_HELP_CHARACTERS = 60  # of a command's line in the overview
MAX_SUBJECT_CHARACTERS = 72  # of a commit
# Characters of names, descriptions and input schemas; of output schemas; of the instructions.
BUDGETS = {"everkept": (2_600, 14_000, 600), "bank": (3_400, 14_000, 600)}
FLAGS: dict[str, dict[str, Any]] = {"everkept": {}, "bank": {"toolsets": "bank"}}


def test_words_keep_to_the_rules() -> None:
    faults = list(voice.find_faults(voice.list_files()))
    assert faults == [], f"{len(faults)} faults; `python tests/support/voice.py` lists them"


@pytest.mark.parametrize("served", BUDGETS)
def test_the_list_of_tools_costs_little_context(tmp_path: Path, served: str) -> None:
    app = App(read_settings({"data_dir": tmp_path, **FLAGS[served]}, {}))
    listed = [describe_tool(tool) for tool in app.tools]
    read = ("name", "description", "inputSchema")
    characters = sum(_measure({key: tool[key] for key in read}) for tool in listed)
    tokens, output, instructions = BUDGETS[served]
    assert characters <= tokens * CHARACTERS_PER_TOKEN
    assert sum(_measure(tool["outputSchema"]) for tool in listed if "outputSchema" in tool) <= output
    assert len(app.instructions) <= instructions


def _measure(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


@pytest.mark.parametrize(
    "flags", [{}, {"toolsets": "bank", "bank_extras": True}, {"dialect": "server-memory"}], ids=str
)
def test_tools_and_parameters_are_described_in_sentences_and_phrases(tmp_path: Path, flags: dict[str, Any]) -> None:
    app = App(read_settings({"data_dir": tmp_path, **flags}, {}))
    bare = [tool.name for tool in app.tools if not tool.description.endswith(".") or len(tool.description) > 150]
    short = [
        f"{tool.name}.{path}"
        for tool in app.tools
        for path, text in _list_descriptions(tool.input_schema)
        if len(text.split()) < 2 or text.endswith(".")
    ]
    assert (bare, short) == ([], [])


def _list_descriptions(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    if text := schema.get("description"):
        yield path, text
    for name, inner in schema.get("properties", {}).items():
        yield from _list_descriptions(inner, f"{path}.{name}".strip("."))
    if "items" in schema:
        yield from _list_descriptions(schema["items"], f"{path}[]")


def test_the_line_of_a_command_is_short_and_a_sentence() -> None:
    overview = {name: line for name, (_, line) in COMMANDS.items()} | dict(JOINED_LINES.values())
    lines = overview | dict(_list_lines(cli, click.Context(cli, info_name="everkept")))
    odd = [name for name, line in lines.items() if len(line) > MAX_HELP_CHARACTERS or not line.endswith(".")]
    assert odd == []


def _list_lines(group: click.Group, context: click.Context) -> Iterator[tuple[str, str]]:
    """List the commands inside groups, with the line that the group's help shows."""
    names = COMMANDS if group is cli else group.list_commands(context)
    for name in names:
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, parent=context, info_name=name)
        if group is not cli:
            yield inner.command_path, command.get_short_help_str(200)
        if isinstance(command, click.Group):
            yield from _list_lines(command, inner)


def test_subjects_of_commits_are_short() -> None:
    told = subprocess.run(
        ["git", "log", "-n", "20", "--format=%s"],
        cwd=voice.ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,  # a copy without history has no subjects
    )
    assert [line for line in told.stdout.splitlines() if len(line) > MAX_SUBJECT_CHARACTERS] == []
