"""What of another server's answer belongs to the protocol between us and it alone."""

from typing import Any, cast

from recollect.core.upstreams import JSON
from recollect.errors import UpstreamError

PROTOCOLS = "io.modelcontextprotocol/"  # how its own keys in `_meta` begin
COMPLETE = "complete"


def answered(result: JSON, upstream: str) -> JSON:
    """The answer without what the stateless era adds to it; all else as it came."""
    kind = result.get("resultType", COMPLETE)
    if kind != COMPLETE:
        raise UpstreamError(
            f"It wants more before it answers ({kind!r}), and a gateway has nothing to give.",
            upstream=upstream,
        )
    kept = {key: value for key, value in result.items() if key not in _OF_THE_ERA}
    meta = kept.get("_meta")
    if isinstance(meta, dict):
        named = cast(dict[str, Any], meta)
        others = {key: value for key, value in named.items() if not key.startswith(PROTOCOLS)}
        if len(others) < len(named):
            kept["_meta"] = others
            if not others:
                del kept["_meta"]
    return kept


_OF_THE_ERA = ("resultType", "ttlMs", "cacheScope")
