from typing import Any

import pytest

from console_calls import ConsoleClient
from everkept.console.markdown_tools import MAX_CHARACTERS, MAX_DEPTH, read_tokens

TAGS = {
    "text", "br", "hr", "code", "pre", "img", "a", "p", "ul", "ol", "li", "blockquote", "table", "thead", "tbody",
    "tr", "th", "td", "em", "strong", "s", "h1", "h2", "h3", "h4", "h5", "h6",
}  # fmt: skip


def walk(tokens: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for token in tokens for each in (token, *walk(token.get("children", [])))]


def test_markdown_becomes_tokens() -> None:
    [heading, paragraph, code] = read_tokens("# One\n\n*two* [three](https://a.example)\n\n```py\nx\n```\n")["tokens"]
    assert heading == {"tag": "h1", "children": [{"tag": "text", "text": "One"}]}
    assert [each["tag"] for each in paragraph["children"]] == ["em", "text", "a"]
    assert paragraph["children"][2]["href"] == "https://a.example"
    assert code == {"tag": "pre", "text": "x\n", "language": "py"}


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "a <b onclick=alert(1)>b</b>",
        "[a](javascript:alert(1)) [b](JaVaScRiPt&#58;alert(1)) [c](vbscript:x) [d](data:text/html,x) [e](file:///etc)",
        "<javascript:alert(1)>",
        "> " * 100 + "deep",
        "* " * 100 + "deep",
    ],
)
def test_html_stays_text_and_links_lead_nowhere_else(text: str) -> None:
    tokens = walk(read_tokens(text)["tokens"])
    assert {each["tag"] for each in tokens} <= TAGS
    assert all(each["href"].startswith(("http://", "https://")) for each in tokens if each["tag"] == "a")


@pytest.mark.parametrize("mark", ["> ", "* ", "1. "])
@pytest.mark.parametrize("times", [1, 5, 18, MAX_DEPTH - 2, MAX_DEPTH - 1, MAX_DEPTH, 90])
def test_no_text_is_lost_however_deep_it_is(mark: str, times: int) -> None:
    tokens = walk(read_tokens(mark * times + "deep")["tokens"])
    assert any("deep" in each.get("text", "") for each in tokens)


def test_the_end_of_a_long_text_is_counted() -> None:
    assert read_tokens("a" * (MAX_CHARACTERS + 5))["rest"] == 5
    assert read_tokens("a")["rest"] == 0


async def test_several_texts_are_read_in_one_call(client: ConsoleClient) -> None:
    found = await client.call("read_markdown", texts=["*a*", "b"])
    assert [each["tokens"][0]["tag"] for each in found["texts"]] == ["p", "p"]
    assert await client.refused("read_markdown") == "invalid_input"
    assert await client.refused("read_markdown", text="a", texts=["b"]) == "invalid_input"
