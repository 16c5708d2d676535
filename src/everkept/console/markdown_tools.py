"""Markdown as a tree of known tokens, from which the page builds its nodes. It creates no HTML."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from everkept.errors import InvalidInput
from everkept.tools.schema import Field
from everkept.tools.tool import ToolFamily, ToolResult, tool

if TYPE_CHECKING:  # loaded when a text is shown
    from markdown_it.tree import SyntaxTreeNode

MAX_CHARACTERS = 50_000  # of one text; the page shows the rest as plain text
MAX_TOGETHER = 200_000  # of all texts of one call
MAX_CELLS = 20_000  # of a table; a text that could have more gets none
MAX_TEXTS = 200
MAX_DEPTH = 40  # of nested tokens; a text with deeper ones stays plain, because the parser drops them

_BLOCKS = {"blockquote", "bullet_list", "heading", "list_item", "ordered_list", "paragraph", "table"}
_ROWS = {"thead", "tbody", "tr", "th", "td"}
_MARKS = {"em", "strong", "s"}


class MarkdownPageTools(ToolFamily):
    def __init__(self) -> None:
        self._turn = asyncio.Lock()  # threads are few, and other calls need them

    @tool()
    async def read_markdown(
        self, text: str | None = None, texts: Annotated[list[str], Field(max_items=MAX_TEXTS)] | None = None
    ) -> ToolResult:
        """Read Markdown into tokens: one text, or several."""
        if (text is None) == (texts is None):
            raise InvalidInput("Pass `text` or `texts`.", hint="Pass exactly one of them.", argument="text")
        wanted = [text] if text is not None else texts or []
        async with self._turn:
            read = await asyncio.to_thread(_read_all, wanted)
        return ToolResult(read[0] if text is not None else {"texts": read})


def read_tokens(text: str, limit: int = MAX_CHARACTERS) -> dict[str, Any]:
    """Return the tokens of a text, and how many characters of its end they omit."""
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

    options = {"html": False, "linkify": False, "maxNesting": MAX_DEPTH}
    parser = MarkdownIt("commonmark", options).enable("strikethrough")
    shown, rest = text[:limit], max(0, len(text) - limit)
    if _count_cells(shown) <= MAX_CELLS:
        parser.enable("table")
    try:
        parsed = parser.parse(shown)
        if all(each.level < MAX_DEPTH - 1 for each in parsed):
            return {"tokens": _read_children(SyntaxTreeNode(parsed)), "rest": rest}
    except RecursionError:  # marks within marks
        pass
    return {"tokens": [{"tag": "pre", "text": shown, "language": ""}], "rest": rest}


def _read_all(texts: list[str]) -> list[dict[str, Any]]:
    read: list[dict[str, Any]] = []
    left = MAX_TOGETHER
    for text in texts:
        limit = min(MAX_CHARACTERS, left)
        read.append(read_tokens(text, limit))
        left -= min(limit, len(text))
    return read


def _count_cells(text: str) -> int:
    """Return how many cells a table in the text can have: each row gets as many as its head."""
    columns = [line.count("|") + 1 for line in text.split("\n")]
    return max(columns) * sum(1 for line in text.split("\n") if line.strip())


def _read_children(node: "SyntaxTreeNode") -> list[dict[str, Any]]:
    return [token for child in node.children for token in _read_node(child)]


def _read_node(node: "SyntaxTreeNode") -> list[dict[str, Any]]:
    kind = node.type
    if kind in ("text", "html_block", "html_inline"):
        return [{"tag": "text", "text": node.content}]
    if kind == "softbreak":
        return [{"tag": "text", "text": "\n"}]
    if kind == "hardbreak":
        return [{"tag": "br"}]
    if kind == "hr":
        return [{"tag": "hr"}]
    if kind == "code_inline":
        return [{"tag": "code", "text": node.content}]
    if kind in ("fence", "code_block"):
        language = node.info.split()[0] if kind == "fence" and node.info.strip() else ""
        return [{"tag": "pre", "text": node.content, "language": language}]
    if kind == "image":
        return [{"tag": "img", "text": node.content, "href": str(node.attrs.get("src", ""))}]
    children = _read_children(node)
    if kind == "link":
        return [{"tag": "a", "href": str(node.attrs.get("href", "")), "children": children}]
    if kind == "paragraph" and node.hidden:
        return children
    if kind in _BLOCKS or kind in _ROWS or kind in _MARKS:
        token: dict[str, Any] = {"tag": node.tag, "children": children}
        start = node.attrs.get("start")
        return [token | {"start": start} if start is not None else token]
    return children
