"""Masks for the secrets in the texts that one call stores."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from everkept.core.secrets import masked, masked_json
from everkept.errors import InvalidInput

T = TypeVar("T")


class Masking:
    """Replaces secrets by masks, if it is enabled, and remembers their kinds in order."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self.kinds: dict[str, None] = {}

    def text(self, text: str) -> str:
        return self._noted(*masked(text)) if self._enabled else text

    def optional(self, text: str | None) -> str | None:
        return self.text(text) if text else text

    def texts(self, texts: Iterable[str]) -> list[str]:
        return [self.text(text) for text in texts]

    def json(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Mask the names of values too; a name also tells that its value is a password."""
        if not self._enabled:
            return dict(values)
        cleaned, kinds = masked_json(values)
        return self._noted(cast(dict[str, Any], cleaned), kinds)

    def check_id(self, given: str, argument: str) -> None:
        """Refuse an id with a secret, since an id is stored unchanged; do not repeat the id."""
        if self._enabled and (kinds := masked(given)[1]):
            raise InvalidInput(
                f"`{argument}` holds what looks like a secret ({', '.join(kinds)}).",
                hint="It is stored as it is: use another one.",
                argument=argument,
            )

    def _noted(self, cleaned: T, kinds: Sequence[str]) -> T:
        self.kinds |= dict.fromkeys(kinds)
        return cleaned
