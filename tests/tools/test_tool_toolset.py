import pytest

from everkept.core.sessions import Call
from everkept.errors import Conflict, NotFound
from everkept.tools.tool import Effect, Result, Tool, Toolset, combined, filtered, renamed
from everkept.values import replace


def made(name: str, effect: Effect = Effect.READS) -> Tool:
    async def run(_call: Call, _arguments: object) -> Result:
        return Result({"name": name}, name)

    return Tool(name, f"The {name} tool.", {"type": "object"}, run, effect)


def names(toolset: Toolset) -> list[str]:
    return [item.name for item in toolset]


def test_toolsets_are_combined_in_order() -> None:
    both = combined([made("b"), made("a")], Toolset([made("c")]))
    assert names(both) == ["b", "a", "c"]
    assert len(both) == 3
    assert "a" in both
    assert "x" not in both


def test_a_name_that_stands_twice_is_a_conflict() -> None:
    with pytest.raises(Conflict):
        combined([made("a")], [made("a")])


def test_a_tool_is_called_by_its_aliases_and_listed_by_its_name() -> None:
    tools = combined([replace(made("a"), aliases=("old_a", "older_a"))])
    assert names(tools) == ["a"]
    assert tools.get("older_a").name == "a"
    assert "old_a" in filtered(tools, lambda item: True)
    assert "old_a" not in filtered(tools, lambda item: False)


@pytest.mark.parametrize("others", [[("b", "old")], [("old", "")], [("b", "a")]])
def test_an_alias_that_is_a_name_already_is_a_conflict(others: list[tuple[str, str]]) -> None:
    first = replace(made("a"), aliases=("old",))
    with pytest.raises(Conflict):
        combined([first], [replace(made(name), aliases=(alias,)) for name, alias in others])


def test_a_filter_keeps_what_fits() -> None:
    tools = [made("a"), made("b", Effect.WRITES)]
    assert names(filtered(tools, lambda item: item.effect is Effect.READS)) == ["a"]


async def test_a_renamed_tool_does_what_it_did() -> None:
    toolset = renamed([made("a"), made("b")], {"a": "z"})
    assert names(toolset) == ["z", "b"]
    result = await toolset.get("z").run(None, {})  # pyright: ignore[reportArgumentType]
    assert result.text == "a"


def test_renaming_onto_another_tool_is_a_conflict() -> None:
    with pytest.raises(Conflict):
        renamed([made("a"), made("b")], {"a": "b"})


def test_an_unknown_tool_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(NotFound) as caught:
        Toolset([made("search_nodes")]).get("search_node")
    assert "search_nodes" in str(caught.value)
