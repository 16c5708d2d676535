from typing import Annotated

import pytest

from everkept.core.sessions import Session, ToolCall
from everkept.errors import InvalidInput
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, ToolFamily, ToolResult, tool
from everkept.values import Value


class Greeting(Value):
    words: str


class Told(Value):
    message: str

    @property
    def sentence(self) -> str:
        return self.message


class Greetings(ToolFamily):
    @tool()
    async def greet(self, call: ToolCall, name: Annotated[str, Field("Whom.")]) -> Greeting:
        """Say hello."""
        return Greeting(f"{call.session.client} greets {name}")

    @tool(Effect.DESTROYS)
    async def silence(self) -> Told:
        """Say nothing more."""
        return Told("Silence.")

    async def not_a_tool(self) -> None:
        """An ordinary method."""


def call(name: str) -> ToolCall:
    return ToolCall(Session(client="Ada"), name)


def test_marked_methods_become_tools_in_their_order() -> None:
    assert [item.name for item in Greetings().list_tools()] == ["greet", "silence"]


def test_a_tool_is_described_by_its_method() -> None:
    greet, silence = Greetings().list_tools()
    assert greet.description == "Say hello."
    assert list(greet.input_schema["properties"]) == ["name"]
    assert greet.annotations["readOnlyHint"] is True
    assert greet.annotations["destructiveHint"] is False
    assert silence.annotations["readOnlyHint"] is False
    assert silence.annotations["destructiveHint"] is True
    assert {item.annotations["openWorldHint"] for item in (greet, silence)} == {False}


async def test_running_a_tool_checks_its_arguments_and_hands_over_the_call() -> None:
    greet, _ = Greetings().list_tools()
    result = await greet.run(call("greet"), {"name": "Bob"})
    assert result.facts == {"words": "Ada greets Bob"}
    assert result.text == '{"words":"Ada greets Bob"}'
    with pytest.raises(InvalidInput):
        await greet.run(call("greet"), {"nam": "Bob"})
    with pytest.raises(InvalidInput):
        await greet.run(call("greet"), ["Bob"])  # pyright: ignore[reportArgumentType]


async def test_a_sentence_is_the_text_and_its_facts_are_structured() -> None:
    _, silence = Greetings().list_tools()
    result = await silence.run(call("silence"), {})
    assert (result.facts, result.text) == ({"message": "Silence."}, "Silence.")


async def test_a_tool_may_return_its_result_itself() -> None:
    class Reader(ToolFamily):
        @tool()
        async def read(self) -> Annotated[ToolResult, Greeting]:
            """Read what was said."""
            return ToolResult({"words": "Hello"})

    [read] = Reader().list_tools()
    greet, _ = Greetings().list_tools()
    assert read.output_schema == greet.output_schema
    result = await read.run(call("read"), {})
    assert result.text == result.facts_json == '{"words":"Hello"}'
    assert result.facts == {"words": "Hello"}


async def test_the_method_stays_an_ordinary_method() -> None:
    assert await Greetings().greet(call("greet"), "Eve") == Greeting("Ada greets Eve")


def test_the_output_schema_admits_the_error_envelope_too() -> None:
    greet, _ = Greetings().list_tools()
    assert greet.output_schema is not None
    own, envelope = greet.output_schema["anyOf"]
    assert "words" in own["properties"]
    assert {"error", "message", "degraded", "retry_possible"} <= set(envelope["required"])
