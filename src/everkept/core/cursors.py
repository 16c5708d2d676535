"""Cursors: where a page ended, as a text that clients hand back without looking inside."""

import base64
import json
from typing import Any, cast

from everkept.errors import InvalidInput


def cursor_of(*position: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()


def position_of(cursor: str, *kinds: type) -> tuple[Any, ...]:
    """What `cursor_of` was given, if it was values of these kinds."""
    try:
        found: Any = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except ValueError:
        found = None
    position = tuple(cast(list[Any], found)) if isinstance(found, list) else ()
    if len(position) != len(kinds) or not all(map(isinstance, position, kinds)):
        raise InvalidInput(
            "`cursor` is not one that this tool gave out.", argument="cursor", value=cursor[:100]
        )
    return position
