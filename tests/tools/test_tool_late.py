import pytest

from everkept.core.sessions import ToolCall
from everkept.errors import Conflict, NotFound
from everkept.tools.tool import Effect, LateToolset, Tool, build_tool, select_tools

FAMILIES = {"a1": "a", "a2": "a", "b1": "b", "wrong": "b"}


def made(name: str, *aliases: str) -> Tool:
    async def run(call: ToolCall) -> None: ...

    run.__name__ = name
    tool = build_tool(run, Effect.READS)
    return Tool(name, "", {}, tool.run, aliases=aliases)


class Makers:
    """Families a and b; `asked` are those that were made."""

    def __init__(self, *of_b: Tool) -> None:
        self.asked: list[str] = []
        self._tools = {"a": [made("a1", "a2"), made("a3")], "b": [*of_b] or [made("b1")]}
        self.toolset = LateToolset({name: lambda n=name: self._make(n) for name in "ab"}, FAMILIES)

    def _make(self, name: str) -> list[Tool]:
        self.asked.append(name)
        return self._tools[name]


def test_a_name_makes_its_own_family_once() -> None:
    makers = Makers()
    assert makers.asked == []
    assert makers.toolset.get("b1").name == "b1"
    assert "b1" in makers.toolset
    assert makers.asked == ["b"]
    assert makers.toolset.get("a2").name == "a1"
    assert makers.asked == ["b", "a"]


def test_a_listing_has_all_in_their_order() -> None:
    toolset = Makers().toolset
    assert [tool.name for tool in toolset] == ["a1", "a3", "b1"]
    assert len(toolset) == 3
    assert [tool.name for tool in select_tools(toolset, lambda tool: tool.name != "a1")] == ["a3", "b1"]


def test_a_name_that_no_family_is_known_for_is_found_too() -> None:
    toolset = Makers().toolset
    assert toolset.get("a3").name == "a3"
    assert "a3" in toolset


def test_a_name_of_another_family_than_was_said_is_found_too() -> None:
    toolset = LateToolset({"a": lambda: [made("wrong")], "b": lambda: [made("b1")]}, FAMILIES)
    assert toolset.get("wrong").name == "wrong"
    assert "wrong" in toolset


def test_what_is_not_there_is_not_found() -> None:
    toolset = Makers().toolset
    assert "x" not in toolset
    assert "wrong" not in toolset
    assert 7 not in toolset
    with pytest.raises(NotFound):
        toolset.get("a4")


def test_a_name_stands_once() -> None:
    with pytest.raises(Conflict):
        len(Makers(made("a1")).toolset)
