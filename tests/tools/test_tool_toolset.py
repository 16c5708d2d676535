import pytest

from everkept.core.sessions import ToolCall
from everkept.errors import Conflict, NotFound
from everkept.tools.tool import Effect, Tool, ToolResult, Toolset, combine, select_tools
from everkept.values import replace


def made(name: str, effect: Effect = Effect.READS) -> Tool:
    async def run(_call: ToolCall, _arguments: object) -> ToolResult:
        return ToolResult({"name": name}, name)

    return Tool(name, f"The {name} tool.", {"type": "object"}, run, effect)


def names(toolset: Toolset) -> list[str]:
    return [item.name for item in toolset]


def test_toolsets_are_combined_in_order() -> None:
    both = combine([made("b"), made("a")], Toolset([made("c")]))
    assert names(both) == ["b", "a", "c"]
    assert len(both) == 3
    assert "a" in both
    assert "x" not in both


def test_a_name_that_stands_twice_is_a_conflict() -> None:
    with pytest.raises(Conflict):
        combine([made("a")], [made("a")])


def test_a_tool_is_called_by_its_aliases_and_listed_by_its_name() -> None:
    tools = combine([replace(made("a"), aliases=("old_a", "older_a"))])
    assert names(tools) == ["a"]
    assert tools.get("older_a").name == "a"
    assert "old_a" in select_tools(tools, lambda item: True)
    assert "old_a" not in select_tools(tools, lambda item: False)


@pytest.mark.parametrize("others", [[("b", "old")], [("old", "")], [("b", "a")]])
def test_an_alias_that_is_a_name_already_is_a_conflict(others: list[tuple[str, str]]) -> None:
    first = replace(made("a"), aliases=("old",))
    with pytest.raises(Conflict):
        combine([first], [replace(made(name), aliases=(alias,)) for name, alias in others])


def test_a_filter_keeps_what_fits() -> None:
    tools = [made("a"), made("b", Effect.WRITES)]
    assert names(select_tools(tools, lambda item: item.effect is Effect.READS)) == ["a"]


def test_an_unknown_tool_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(NotFound) as caught:
        Toolset([made("search_nodes")]).get("search_node")
    assert "search_nodes" in str(caught.value)
