from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.errors import UpstreamError
from everkept.families.gateway.model import JSON
from everkept.families.gateway.toolset import to_result
from everkept.tools.tool import ToolResult
from gateways import said

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def result(answer: Any) -> ToolResult:
    return to_result(answer, "notes", "search")


@given(
    st.lists(st.dictionaries(st.sampled_from(["type", "text", "data", "x"]), JSON_VALUES)),
    st.dictionaries(st.sampled_from(["structuredContent", "isError", "unknown"]), JSON_VALUES),
)
def test_an_answer_goes_on_as_it_came(content: list[JSON], more: JSON) -> None:
    answer = {"content": content, **more}
    assert result(answer).wire == answer


def test_an_answer_without_content_gets_an_empty_one() -> None:
    assert result({"isError": True}).wire == {"isError": True, "content": []}
    assert result({"isError": True}).is_error


def test_texts_are_joined_and_other_content_is_named() -> None:
    blocks = [
        {"type": "text", "text": "one"},
        {"type": "image", "data": "A" * 16000, "mimeType": "image/png"},
        {"type": "audio", "data": "A" * 400, "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "note:1", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "note:2", "mimeType": "x/y", "blob": "AAAA"}},
        {"type": "resource_link", "uri": "note:3", "name": "third", "mimeType": "text/plain"},
        {"type": "hologram"},
        "bare",
    ]
    assert result({"content": blocks}).text.splitlines() == [
        "one",
        "[image image/png, 12 KB]",
        "[audio audio/wav, 300 bytes]",
        "inside",
        "[resource note:2 x/y, 3 bytes]",
        "[resource note:3, third, text/plain]",
        "[hologram]",
        "bare",
    ]


def test_structured_content_is_the_servers_else_the_content() -> None:
    assert result(said("tea", structuredContent={"found": 1})).facts == {"found": 1}
    assert result(said("tea")).facts == {"content": said("tea")["content"]}
    assert result(said("tea", structuredContent=[1])).facts == {"content": said("tea")["content"]}


@pytest.mark.parametrize("answer", [None, [], "text", {"content": "text"}, {"content": None}, {"_meta": 5}])
def test_what_is_no_result_is_an_error_of_the_server(answer: Any) -> None:
    with pytest.raises(UpstreamError) as caught:
        result(answer)
    assert caught.value.facts["upstream"] == "notes"
    assert '"search"' in str(caught.value)


def test_a_server_cannot_ask_the_user_through_the_gateway() -> None:
    with pytest.raises(UpstreamError, match="not supported"):
        result({"resultType": "input_required", "inputRequests": {}})
