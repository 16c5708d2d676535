"""What another server answers to a call, as a result of ours."""

from typing import Any, cast

from everkept.core.text import clipped
from everkept.errors import UpstreamError
from everkept.families.gateway.model import JSON
from everkept.tools.tool import Result

INPUT_REQUIRED = "input_required"  # the server wants to ask the user before it goes on
_BASE64 = 3 / 4  # bytes a character
_KILOBYTE = 1000


def result_of(answer: Any, upstream: str, tool: str) -> Result:
    """It goes on as it came; text and structured content are for the command line."""
    if not isinstance(answer, dict):
        raise _no_result(upstream, tool, "it is no object")
    wire = cast(JSON, answer)
    if wire.get("resultType") == INPUT_REQUIRED:
        raise UpstreamError(
            f'"{tool}" of {upstream} wants to ask the user something before it goes on, and the '
            "gateway cannot ask on its behalf.",
            upstream=upstream,
        )
    content = wire.get("content", [])
    if not isinstance(content, list):
        raise _no_result(upstream, tool, "its `content` is no list")
    if not isinstance(wire.get("_meta", {}), dict):
        raise _no_result(upstream, tool, "its `_meta` is no object")
    blocks = cast(list[Any], content)
    structured = wire.get("structuredContent")
    return Result(
        structured=cast(JSON, structured) if isinstance(structured, dict) else {"content": blocks},
        sentence="\n".join(_text(block) for block in blocks),
        wire=wire if "content" in wire else {**wire, "content": []},
    )


def _no_result(upstream: str, tool: str, reason: str) -> UpstreamError:
    return UpstreamError(
        f'{upstream} answered "{tool}" with what is no result of a tool: {reason}.',
        upstream=upstream,
    )


def _text(block: Any) -> str:
    """A block as a person reads it."""
    if not isinstance(block, dict):
        return clipped(str(block))
    fields = cast(JSON, block)
    kind = str(fields.get("type", "unknown"))
    match kind:
        case "text":
            return str(fields.get("text", ""))
        case "resource":
            return _resource(fields.get("resource"))
        case "resource_link":
            named = (fields.get(key) for key in ("uri", "name", "mimeType"))
            return f"[resource {', '.join(str(each) for each in named if each)}]"
        case _:
            return _data(kind, fields.get("mimeType"), fields.get("data"))


def _resource(resource: Any) -> str:
    fields = cast(JSON, resource) if isinstance(resource, dict) else {}
    if isinstance(fields.get("text"), str):
        return cast(str, fields["text"])
    uri = fields.get("uri")
    kind = f"resource {uri}" if isinstance(uri, str) else "resource"
    return _data(kind, fields.get("mimeType"), fields.get("blob"))


def _data(kind: str, mime_type: Any, data: Any) -> str:
    about = f" {mime_type}" if isinstance(mime_type, str) else ""
    size = f", {_size(len(data))}" if isinstance(data, str) else ""
    return f"[{kind}{about}{size}]"


def _size(characters: int) -> str:
    count = int(characters * _BASE64)
    return f"{count} bytes" if count < _KILOBYTE else f"{round(count / _KILOBYTE)} KB"
