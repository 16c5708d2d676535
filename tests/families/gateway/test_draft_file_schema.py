import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.json_text import JsonDocument
from everkept.families.gateway.draft import build_file_schema
from everkept.families.gateway.file_reader import parse_file
from everkept.families.gateway.file_values import join_path

SCHEMA = build_file_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
DOCS = Path(__file__).parents[3] / "docs"
SIMPLE = Path(__file__).parent / "simple.json"

# What the reader says of keys that are missing, or do not belong there.
OF_THE_SHAPE = ("means nothing here", "has no `", "has neither", "goes with", "has both")

JSON = dict[str, Any]

words = st.text(st.sampled_from("abcxyz"), min_size=1, max_size=6)
texts = st.text(st.sampled_from("aé $:/"), max_size=8)
values = st.none() | st.booleans() | st.integers(-9, 9) | texts | st.lists(texts, max_size=2)
seconds = st.floats(0.001, 86_400) | st.integers(1, 86_400)


def some(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[JSON]:
    """An object with any of these keys."""
    return st.fixed_dictionaries({}, optional=keys)


@st.composite
def choices(draw: st.DrawFn) -> JSON:
    """What is passed through, in names that no other server and no tool has."""
    tools = draw(st.lists(words, unique=True, max_size=4))
    cut = draw(st.integers(0, len(tools)))
    chosen: JSON = {"prefix": draw(words) + "_", "hide": tools[:cut]}
    if draw(st.booleans()):
        chosen["only"] = tools[cut:]
    chosen["rename"] = {tool: f"{draw(words)}.{n}" for n, tool in enumerate(tools[cut:]) if n % 2}
    return chosen


shared = some(connectTimeout=seconds, callTimeout=seconds, start=st.sampled_from(["first-use", "at-start"]))
programs = st.builds(
    lambda command, rest, limits: {"command": command, **rest, **limits},
    words,
    some(
        args=st.lists(texts, max_size=3),
        env=st.dictionaries(words, st.sampled_from(["", "a b", "${NAME}", "x${A}y$"]), max_size=2),
        cwd=words,
    ),
    shared,
)
addresses = st.builds(
    lambda scheme, host, rest, limits: {"url": f"{scheme}://{host}:80/mcp", **rest, **limits},
    st.sampled_from(["http", "https"]),
    words,
    some(headers=st.dictionaries(words, st.sampled_from(["", "Bearer ${A}"]), max_size=2)),
    shared,
)
servers = programs | addresses
schemas = st.builds(
    lambda properties, rest: {"type": "object", "properties": properties, **rest},
    st.dictionaries(words, st.sampled_from([{}, True, {"type": "string"}]), max_size=3),
    some(required=st.lists(words, unique=True, max_size=2), additionalProperties=st.booleans(), description=texts),
)


@st.composite
def targets(draw: st.DrawFn, names: list[str]) -> JSON:
    first = draw(st.lists(st.text("a.\\é", min_size=1, max_size=3), unique=True, max_size=4))
    paths = [join_path([key, *draw(st.lists(words, max_size=2))]) for key in first]
    cut = draw(st.integers(0, len(paths)))
    mapping = {f"p{n}": path for n, path in enumerate(paths[:cut])}
    # At the top a parameter without an entry must not meet a path.
    places = ["rest", "rest.of.it", *(["*"] if "a" not in first else [])]
    rest = {"*": draw(st.sampled_from(places))} if draw(st.booleans()) else {}
    target: JSON = {"tool": draw(words), "paramMapping": mapping | rest}
    if len(names) > 1:
        target["server"] = draw(st.sampled_from(names))
    if draw(st.booleans()):
        target["constants"] = {path: draw(values) for path in paths[cut:]}
        target["defaults"] = {parameter: draw(values) for parameter in mapping}
    return target


@st.composite
def files(draw: st.DrawFn) -> JSON:
    """A file in which everything is right."""
    names = draw(st.lists(words, unique=True, min_size=1, max_size=3))
    described = [draw(servers) for _ in names]
    if draw(st.booleans()):
        described[0] = described[0] | {"passThrough": draw(choices() | st.booleans())}
    whole: JSON = {"upstreams": dict(zip(names, described, strict=True))}
    if len(names) == 1 and draw(st.booleans()):
        whole = {"upstream": described[0]}
    has_passed = bool(described[0].get("passThrough"))
    tools = draw(st.lists(words, unique=True, min_size=0 if has_passed else 1, max_size=3))
    rest = some(title=words, annotations=some(readOnlyHint=st.booleans(), title=words), outputSchema=schemas)
    whole["tools"] = [
        {
            "name": f"tool-{tool}",
            "description": draw(texts),
            "inputSchema": draw(schemas),
            "upstream": draw(targets(names)),
            **draw(rest),
        }
        for tool in tools
    ]
    return whole | draw(some(instructions=words, **{"$schema": texts}))


@st.composite
def changed_files(draw: st.DrawFn) -> JSON:
    """A file in which one thing is taken out, put in, or something else."""
    whole = copy.deepcopy(draw(files()))
    containers = list(_containers(whole))
    container = draw(st.sampled_from(containers))
    other = draw(values | st.sampled_from([{}, [], [{}], {"a": 1}, 0, -1, 1e6, "a b", "a..b", ".", "ftp://a", "\n"]))
    if isinstance(container, list):
        container.insert(draw(st.integers(0, len(container))), other)
        return whole
    change = draw(st.sampled_from(["change", "remove", "rename", "add"]))
    if change == "add" or not container:
        known = st.sampled_from(["url", "command", "args", "env", "headers", "server", "upstream"])
        container[draw(words | known)] = other
        return whole
    key = draw(st.sampled_from(sorted(container)))
    old = container[key]
    if change == "change":
        container[key] = other
    else:
        del container[key]
    if change == "rename":
        container[draw(words | texts)] = old
    return whole


def _containers(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _containers(item)


@given(files(), st.sampled_from([None, 1]))
def test_a_right_file_is_right_for_the_schema_and_for_the_reader(whole: JSON, indent: int | None) -> None:
    assert list(VALIDATOR.iter_errors(whole)) == []
    found = parse_file(json.dumps(whole, indent=indent), Path("/"))
    assert found.problems == []
    assert found.config is not None
    assert [tool.name for tool in found.config.tools] == [tool["name"] for tool in whole["tools"]]


@given(changed_files())
def test_whatever_the_schema_refuses_the_reader_refuses_too(whole: JSON) -> None:
    text = json.dumps(whole, indent=1)
    found = parse_file(text, Path("/"))
    assert (found.config is None) == bool(found.problems)
    lines = len(text.splitlines())
    assert all(1 <= note.line <= lines for note in [*found.problems, *found.warnings])
    is_valid = VALIDATOR.is_valid(whole)
    assert found.problems or is_valid
    assert not (is_valid and any(kind in str(found.problems) for kind in OF_THE_SHAPE))


def test_the_schema_is_one_itself() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_the_published_schema_is_this_one() -> None:
    published = (DOCS / "gateway.schema.json").read_text(encoding="utf-8")
    assert json.loads(published) == SCHEMA


def test_the_simplest_kind_of_file_fits_the_schema() -> None:
    assert VALIDATOR.is_valid(JsonDocument(SIMPLE.read_text(encoding="utf-8")).value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"a": {"type": "text"}}}, "x"),
        ({"properties": {"a": {"items": {"required": "b"}}}}, "x"),
        ({"anyOf": [{"enum": 5}]}, "x"),
        ({}, "${A:-b}"),
        ({}, "${"),
    ],
)
def test_an_editor_tells_of_common_mistakes(schema: JSON, value: str) -> None:
    whole = JsonDocument(SIMPLE.read_text(encoding="utf-8")).value
    whole["tools"][0]["inputSchema"] |= schema
    whole["upstream"]["env"] = {"A": value}
    assert not VALIDATOR.is_valid(whole)
    assert parse_file(json.dumps(whole), Path("/")).problems


@pytest.mark.parametrize("name", sorted(SCHEMA["$defs"]))
def test_everything_that_can_be_written_is_described(name: str) -> None:
    definition = SCHEMA["$defs"][name]
    if name in {"toolSchema", "schema", "annotations"}:  # described where they are used
        return
    for key, value in definition.get("properties", {}).items():
        target = SCHEMA["$defs"].get(value.get("$ref", "").rpartition("/")[2], {})
        assert value.get("description") or target.get("description"), (name, key)
