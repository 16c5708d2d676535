"""Prompts name only tools that the server offers, and check their arguments."""

import re
from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.app.prompts import PROMPTS, check_arguments, find_prompt, list_prompts
from everkept.errors import InvalidInput, NotFound
from everkept.settings import read_settings

ALL = ["remember", "recall", "what_did_we_decide", "catch_me_up", "end_of_session"]


def build_app(folder: Path, **flags: Any) -> App:
    return App(read_settings({"data_dir": folder, **flags}, {}))


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ({}, ALL),
        ({"read_only": True}, ["recall", "what_did_we_decide", "catch_me_up"]),
        ({"toolsets": "bank"}, ["what_did_we_decide", "catch_me_up", "end_of_session"]),
        ({"toolsets": "graph"}, ["recall"]),
        ({"dialect": "server-memory"}, ["recall"]),
    ],
    ids=str,
)
def test_a_prompt_is_offered_with_its_tools_and_names_no_other(
    tmp_path: Path, flags: dict[str, Any], names: list[str]
) -> None:
    tools = build_app(tmp_path, **flags).own_tools
    prompts = list_prompts(tools)
    assert [prompt.name for prompt in prompts] == names
    every_tool = {tool.name for each in ({}, {"toolsets": "bank"}) for tool in build_app(tmp_path, **each).tools}
    for prompt in prompts:
        text = prompt.render(tools, {argument.name: "caching" for argument in prompt.arguments})
        named = set(re.findall(r"[a-z]+(?:_[a-z]+)+", text)) & every_tool
        assert named
        assert [name for name in named if name not in tools] == []
        assert ("caching" in text) == bool(prompt.arguments)


def test_arguments_are_texts_and_none_is_missing_or_unknown(tmp_path: Path) -> None:
    remember = find_prompt("remember", build_app(tmp_path).own_tools)
    assert check_arguments(remember, {"text": "Use tabs {not} spaces"}) == {"text": "Use tabs {not} spaces"}
    assert "Use tabs {not} spaces" in remember.render((), {"text": "Use tabs {not} spaces"})
    for wrong in ({}, {"text": ""}, {"text": 3}, {"text": "a", "topic": "b"}):
        with pytest.raises(InvalidInput, match="remember"):
            check_arguments(remember, wrong)


def test_an_unknown_prompt_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="remember, recall"):
        find_prompt("forget", build_app(tmp_path).own_tools)


def test_titles_and_descriptions_are_short_sentences() -> None:
    assert [prompt.title for prompt in PROMPTS][2] == "What did we decide"
    assert all(prompt.description.endswith(".") and len(prompt.description) <= 60 for prompt in PROMPTS)
