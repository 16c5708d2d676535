import tomllib
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from everkept.clients.config_files import UnexpectedShape
from everkept.clients.toml_text import NotToml, format_table, format_value, parse_text, remove_value, with_value

ENTRY = {"command": "/opt/everkept", "args": ["serve", "--project", "auto"]}
OURS = ("mcp_servers", "everkept")

names = st.sampled_from(["model", "a-b", "mcp_servers", "everkept", "x y", "日", ""])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.booleans() | st.integers(-99, 99) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=2),
    max_leaves=5,
)
# What a scanner that does not know texts would take for something else.
tricky = st.sampled_from(
    [
        '"""\n[mcp_servers.everkept]\ncommand = "no"\n"""',
        "'''\n[[x]] # '' \n'''",
        '"a # b"',
        "'c:\\x'",
        '[ # one\n  "]", # two ]\n  [1, 2],\n]',
        '{ a = "}", b = [1] }',
        "1979-05-27 07:32:00Z # when",
        "+1_000.5e3",
        '"""x""\\""""""',
    ]
)
lines = st.sampled_from(["", "# note", "  # [mcp_servers.everkept]", "\t"])


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Files with tables, comments and gaps, as somebody may have written them."""
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    parts: list[str] = []
    heads = draw(st.lists(st.sampled_from(["a", "mcp_servers.other", "a . 'b c'", "z.env", "[tasks]"]), unique=True))
    for head in ["", *heads]:
        parts += [f"[{head}]  # head"] if head else []
        for number in range(draw(st.integers(0, 3))):
            parts += draw(st.lists(lines, max_size=2))
            value = draw(tricky) if draw(st.booleans()) else format_value(draw(values))
            parts.append(f"{draw(st.sampled_from(['', '  ']))}key{number} = {value}")
    text = "\n".join([*parts, *draw(st.lists(lines, max_size=2))])
    return text.replace("\n", newline) + draw(st.sampled_from(["", newline, newline * 2]))


@given(values)
def test_a_value_that_is_written_is_read_again(value: Any) -> None:
    assert tomllib.loads(f"value = {format_value(value)}") == {"value": value}


@given(documents())
def test_a_table_that_is_put_in_is_there_and_taking_it_out_gives_the_text_back(text: str) -> None:
    before = parse_text(text)
    changed = with_value(text, OURS, ENTRY)
    after = parse_text(changed)
    assert after["mcp_servers"].pop("everkept") == ENTRY
    if "mcp_servers" not in before:
        del after["mcp_servers"]
    assert after == before
    assert changed.startswith(text)
    assert remove_value(changed, OURS) == text
    assert with_value(changed, OURS, ENTRY) == changed


@given(documents(), documents())
def test_what_others_wrote_around_it_stays(above: str, below: str) -> None:
    assume(above.endswith("\n"))
    below = "\n[later]\n" + "".join(f"{line}\n" for line in below.splitlines() if line.lstrip().startswith("#"))
    changed = with_value(above, OURS, ENTRY) + below
    assert remove_value(changed, OURS) == above + below


@given(documents(), values)
def test_a_value_in_our_table_is_changed_in_its_place(text: str, new: Any) -> None:
    assume(not isinstance(new, dict))
    ours = with_value(text, OURS, ENTRY)
    changed = with_value(ours, (*OURS, "command"), new)
    assert parse_text(changed)["mcp_servers"]["everkept"] == {**ENTRY, "command": new}
    assert changed.replace(f"command = {format_value(new)}", 'command = "/opt/everkept"') == ours


def test_a_table_is_written_as_people_write_it() -> None:
    assert with_value("", OURS, ENTRY) == (
        '[mcp_servers.everkept]\ncommand = "/opt/everkept"\nargs = ["serve", "--project", "auto"]\n'
    )
    assert format_table(("a", "b c"), {"path": "C:\\x y", "on": True}) == ("[a.\"b c\"]\npath = 'C:\\x y'\non = true")


def test_a_new_key_joins_its_table() -> None:
    text = '[mcp_servers.everkept]\n  command = "r" # mine\n\n[mcp_servers.everkept.env]\nA = "1"\n'
    changed = with_value(text, (*OURS, "args"), ["serve"])
    assert changed == text.replace("# mine\n", '# mine\n  args = ["serve"]\n')


def test_a_table_goes_with_the_tables_below_it() -> None:
    others = 'model = "x"\n\n[mcp_servers.a]\ncommand = "a"\n'
    ours = '\n[mcp_servers.everkept]\ncommand = "r"\n\n[mcp_servers.everkept.env]\nA = "1"\n'
    rest = "\n# keep me\n[tui]\nnotify = true\n"
    assert remove_value(others + ours + rest, OURS) == others + rest


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ('[mcp_servers]\neverkept = { command = "r" }\nb = {}\n', "[mcp_servers]\nb = {}\n"),
        ('[mcp_servers]\neverkept.command = "r"\nb.x = 1\n', "[mcp_servers]\nb.x = 1\n"),
        ('mcp_servers.everkept.command = "r"\nx = 1', "x = 1"),
        ('["mcp_servers"."everkept"]\ncommand = "r"', ""),
    ],
)
def test_other_ways_of_writing_the_table_are_known(text: str, rest: str) -> None:
    changed = with_value(text, (*OURS, "command"), "new")
    assert parse_text(changed)["mcp_servers"]["everkept"] == {"command": "new"}
    assert remove_value(text, OURS) == rest


@pytest.mark.parametrize("text", ['mcp_servers = { everkept = { command = "r" } }\n', 'mcp_servers = "no"\n'])
def test_a_place_that_is_part_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(UnexpectedShape):
        with_value(text, (*OURS, "command"), "new")
    with pytest.raises(UnexpectedShape):
        remove_value(text, OURS)


@pytest.mark.parametrize("text", ["a = ", "[a", "a = 1\na = 2", "=", 'a = "\n"'])
def test_what_cannot_be_read_is_told(text: str) -> None:
    for act in (parse_text, lambda text: with_value(text, ["x"], 1), lambda text: remove_value(text, ["x"])):
        with pytest.raises(NotToml):
            act(text)


def test_taking_out_what_is_not_there_changes_nothing() -> None:
    text = "# only this\n[mcp_servers]"
    assert remove_value(text, OURS) == text
