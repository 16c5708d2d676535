from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
JSON = dict[str, Any]


def entry(name: str, properties: JSON, required: tuple[str, ...] = ()) -> JSON:
    """A tool that gives back what it was asked."""
    return {
        "name": name,
        "description": f"Says what {name} was asked. In full.",
        "inputSchema": {"type": "object", "properties": properties, "required": list(required)},
        "upstream": {"tool": "echo", "paramMapping": {key: key.replace(".", "") for key in properties}},
    }


@pytest.fixture
def offer(write: Run, actor: Run) -> Callable[..., Path]:
    return lambda *tools: write({"upstream": actor(tools=None), "tools": list(tools)})


def test_a_tool_is_a_command_with_its_help(everkept: Run, offer: Run) -> None:
    text = {"type": "string", "description": "What to look for"}
    offer(entry("memory__search", {"query": text, "limit": {"type": "number", "default": 10}}))
    overview = everkept("tools").out
    assert "Tools of the gateway:" in overview
    assert "Says what memory__search was asked." in overview
    page = everkept("memory-search", "--help").out
    assert "--query TEXT" in page
    assert "What to look for" in page
    assert "[default: 10]" in page


def test_words_and_options_reach_the_server_by_their_types(everkept: Run, offer: Run) -> None:
    offer(
        entry(
            "memory__search",
            {
                "query": {"type": "string"},
                "limit": {"type": "number"},
                "maxAge": {"type": "integer"},
                "deep": {"type": "boolean"},
                "mode": {"enum": ["both", "text"]},
                "tags": {"type": "array", "items": {"type": "string"}},
                "filters": {"type": "object"},
                "left_out": {"type": "string", "default": "x"},
            },
            ("query",),
        )
    )
    outcome = everkept(
        *("memory-search", "tea", "and", "milk", "--limit", "2.5", "--max-age", "7"),
        *("--no-deep", "--mode", "text", "--tags", "a", "--tags", "b", "--filters", '{"x": 1}'),
    )
    assert outcome.status == 0, outcome.err
    assert outcome.json == {
        "query": "tea and milk",
        "limit": 2.5,
        "maxAge": 7,
        "deep": False,
        "mode": "text",
        "tags": ["a", "b"],
        "filters": {"x": 1},
    }


def test_several_words_that_are_needed_stand_in_order(everkept: Run, offer: Run) -> None:
    numbers = {"type": "array", "items": {"type": "integer"}}
    properties = {"path": {"type": "string"}, "lines": numbers}
    offer(entry("memory__read", properties, ("path", "lines")))
    assert everkept("memory-read", "a.md", "3", "4").json == {"path": "a.md", "lines": [3, 4]}
    assert everkept("memory-read", "a.md").status == 2
    assert everkept("memory-read", "a.md", "three").status == 2


def test_what_is_needed_may_be_an_option_too(everkept: Run, offer: Run) -> None:
    text = {"type": "string"}
    offer(
        entry("memory__search", {"query": text, "limit": {"type": "integer"}}, ("query",)),
        entry("memory__link", {"from": text, "to": text}, ("from", "to")),
    )
    assert everkept("memory-search", "--query", "Ada L.").json == {"query": "Ada L."}
    assert everkept("memory-link", "--to", "b", "a").json == {"from": "a", "to": "b"}
    for wrong in (["memory-search"], ["memory-link", "a"], ["memory-link", "a", "b", "c"]):
        outcome = everkept(*wrong)
        assert (outcome.status, outcome.out) == (2, "")
    assert "'TO'" in everkept("memory-link", "a").err
    assert everkept("memory-search", "tea", "--query", "milk").status == 2
    assert "QUERY..." in everkept("memory-search", "--help").out.splitlines()[0]


def test_objects_are_typed_as_keys_and_values(everkept: Run, offer: Run) -> None:
    text = {"type": "string"}
    item = {"name": text, "age": {"type": "integer"}, "notes": {"type": "array", "items": text}}
    entities = {"type": "array", "items": {"type": "object", "properties": item}}
    offer(entry("memory__create", {"entities": entities}, ("entities",)))
    typed = ["name=Ada", "age=36", "notes=a=1", "notes=b", "name=Bob", '{"name": "Eve"}']
    assert everkept("memory-create", *typed).json == {
        "entities": [{"name": "Ada", "age": 36, "notes": ["a=1", "b"]}, {"name": "Bob"}, {"name": "Eve"}]
    }
    assert everkept("memory-create", '[{"name": "Ada"}]').json == {"entities": [{"name": "Ada"}]}
    assert everkept("memory-create", "-", stdin='[{"name": "Ada"}]').json == {"entities": [{"name": "Ada"}]}
    assert "name=… age=… notes=…" in everkept("memory-create", "--help").out
    refused = everkept("memory-create", "nme=Ada")
    assert refused.status == 2
    assert "Known: name, age, notes" in refused.err


def test_a_word_out_of_a_list_is_checked_at_once(everkept: Run, offer: Run) -> None:
    offer(entry("memory__sort", {"order": {"enum": ["newest", "best"]}}, ("order",)))
    assert everkept("memory-sort", "best").json == {"order": "best"}
    refused = everkept("memory-sort", "worst")
    assert refused.status == 2
    assert "'newest', 'best'" in refused.err


def test_json_prints_the_answer_as_it_came(everkept: Run, offer: Run) -> None:
    offer(entry("memory__search", {"query": {"type": "string"}}))
    answer = everkept("memory-search", "--query", "tea", "--json").json
    assert answer["structuredContent"] == {"query": "tea"}
    assert answer["content"][0]["type"] == "text"


def test_options_of_every_command_keep_their_names(everkept: Run, offer: Run) -> None:
    names = ("config", "data_dir", "json", "log-level", "project", "yes", "help")
    offer(entry("memory__find", {name: {"type": "string"} for name in names}))
    words = [
        *("--tool-config", "1", "--tool-data-dir", "2", "--tool-json", "3"),
        *("--tool-log-level", "4", "--project", "5", "--yes", "6", "--tool-help", "7"),
    ]
    sent = dict(zip(names, "1234567", strict=True))
    assert everkept("memory-find", *words).json == sent


def test_a_tool_may_have_an_engine_and_a_database_of_its_own(everkept: Run, offer: Run) -> None:
    names = ("engine", "database_url", "database_user")
    offer(entry("memory__find", {name: {"type": "string"} for name in names}))
    words = ["--engine", "postgres", "--database-url", "pg://a", "--database-user", "me"]
    assert everkept("memory-find", *words).json == dict(zip(names, words[1::2], strict=True))


def test_parameters_that_read_alike_are_told_apart(everkept: Run, offer: Run) -> None:
    offer(entry("memory__find", {name: {"type": "string"} for name in ("max_age", "maxAge", "$")}))
    sent = everkept("memory-find", "--max-age", "1", "--tool-max-age", "2")
    assert sent.json == {"max_age": "1", "maxAge": "2"}


def test_a_name_that_is_taken_stays_whose_it_was(everkept: Run, offer: Run) -> None:
    offer(*(entry(name, {}) for name in ("recall", "Read_Graph", "read__graph", "a_b", "a__b")))
    overview = everkept("tools").out
    assert overview.count("\n  recall ") == 0
    assert "Says what read__graph" not in overview
    assert "Says what Read_Graph" in overview
    assert "Says what a_b was asked" in overview
    assert "Says what a__b was asked" not in overview
    assert everkept("gateway", "call", "a__b").status == 0


@pytest.mark.parametrize("text", ["{", '{"upstream": {}}', None])
def test_a_file_that_cannot_be_used_stops_no_other_command(everkept: Run, write: Run, text: str | None) -> None:
    path: Path = write(text or "")
    if text is None:
        path.unlink()
    everkept("create-project", "shop")
    listed = everkept("list-projects")
    assert (listed.status, listed.err) == (0, "")
    overview = everkept("tools")
    assert (overview.status, overview.err) == (0, "")
    assert "Tools of the gateway" not in overview.out
    missing = everkept("memory-search", "x")
    assert missing.status == 2
    assert "The gateway's file has a fault" in missing.err
    assert str(path) in missing.err


def test_an_answer_that_is_an_error_ends_a_command_with_status_one(everkept: Run, offer: Run) -> None:
    offer({**entry("memory__search", {}), "upstream": {"tool": "fails", "paramMapping": {}}})
    outcome = everkept("memory-search")
    assert (outcome.status, outcome.out) == (1, "")
    assert "It did not work." in outcome.err


def test_what_a_schema_says_does_not_steer_the_terminal(everkept: Run, offer: Run) -> None:
    odd = {"type": "string", "description": "\x1b[2Jred", "default": "\x1b[1m"}
    choice = {"enum": ["\x1b[3m", "b"]}
    offer(entry("memory__search", {"query": odd, "mode": choice, "no": False}))
    page = everkept("memory-search", "--help")
    assert page.status == 0
    assert "\x1b" not in page.out
    assert "--no " not in page.out
    assert everkept("memory-search", "--mode", "b").json == {"mode": "b"}
