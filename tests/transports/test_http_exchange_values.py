"""Messages with very many values, which would block the server while they are decoded."""

import json
from typing import Any

import pytest

from asgi_client import asked
from everkept.core.mcp import MAX_VALUES, decode_message
from everkept.transports.http import McpEndpoint
from everkept.upstreams.link import UnreadableJson, parse_message

MANY = MAX_VALUES + 1


@pytest.mark.parametrize("body", [b"[" + b"[]," * MANY + b"1]", b"[" + b"1," * MANY + b"1]", b"{" + b'"":{},' * MANY])
async def test_a_message_of_very_many_values_is_refused_before_it_is_decoded(
    endpoint: McpEndpoint, body: bytes
) -> None:
    headers: dict[str, Any] = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    answer = await asked(endpoint, "/mcp", "POST", body=body, **headers)
    assert answer.status == 400
    assert "more than 250,000 values" in answer.json["error"]["message"]
    with pytest.raises(UnreadableJson, match="more than"):
        parse_message(body)


@pytest.mark.parametrize("text", ["a,[b,{" * MANY, '\\"' * MANY, '",' * MANY, "\\", "é[" * MANY])
def test_signs_within_texts_do_not_count(text: str) -> None:
    for ascii in (True, False):
        assert decode_message(json.dumps([text, {"a": text}], ensure_ascii=ascii).encode()) == [text, {"a": text}]


@pytest.mark.parametrize("body", [b'["' + b'\\"' * MANY, b'["' + b"," * MANY, b'["' + b"," * MANY + b"\\"])
def test_an_open_text_is_no_json(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"Unterminated|Invalid"):
        decode_message(body)
