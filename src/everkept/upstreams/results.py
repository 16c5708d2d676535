"""What another server's answer comes to, without what belongs to the protocol between us alone."""

import json
from typing import Any, cast

from everkept.core.protocol import META
from everkept.core.upstreams import JSON
from everkept.errors import UpstreamError, visible

COMPLETE = "complete"

_LONGEST_QUOTE = 200  # characters of an error that has no message
_MOST_DATA = 4096  # bytes of JSON that an error may bring along

# Others of the protocol's keys are about the result: that of a task that it belongs to, say.
_OF_THE_ERA = frozenset(
    META + key
    for key in (
        "clientCapabilities",
        "clientInfo",
        "logLevel",
        "protocolVersion",
        "serverInfo",
        "subscriptionId",
    )
)


def result_of(message: JSON, upstream: str) -> JSON:
    """The result of an answer; UpstreamError in the server's own words where it is an error."""
    error, result = message.get("error"), message.get("result")
    if error is not None:
        raise _refusal(error, upstream)
    if isinstance(result, dict):
        return cast(JSON, result)
    wrong = "an answer without a result" if result is None else "a result that is no object"
    raise UpstreamError(f"{upstream} gave {wrong}.", upstream=upstream)


def _refusal(error: Any, upstream: str) -> UpstreamError:
    body = cast(JSON, error) if isinstance(error, dict) else {"message": error}
    said, code = body.get("message"), body.get("code")
    is_number = isinstance(code, int) and not isinstance(code, bool)
    return UpstreamError(
        said if isinstance(said, str) and said.strip() else f"error {_quoted(str(body))}",
        upstream=upstream,
        upstream_code=code if is_number else None,
        upstream_data=body.get("data") if _is_small(body.get("data")) else None,
    )


def _is_small(data: Any) -> bool:
    try:
        return len(json.dumps(data)) <= _MOST_DATA
    except RecursionError:
        return False


def _quoted(text: str) -> str:
    return visible(text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "…")


def answered(result: JSON, upstream: str) -> JSON:
    """The result without what the stateless era adds to it; all else as it came."""
    kind = result.get("resultType", COMPLETE)
    if kind != COMPLETE:
        wanted = _quoted(repr(kind))
        raise UpstreamError(
            f"It wants more before it answers ({wanted}), and a gateway has nothing to give.",
            upstream=upstream,
        )
    kept = {key: value for key, value in result.items() if key != "resultType"}
    meta = kept.get("_meta")
    if isinstance(meta, dict):
        named = cast(dict[str, Any], meta)
        others = {key: value for key, value in named.items() if key not in _OF_THE_ERA}
        if len(others) < len(named):
            kept["_meta"] = others
            if not others:
                del kept["_meta"]
    return kept
