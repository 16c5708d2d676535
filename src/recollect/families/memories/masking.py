"""Secrets kept out of what is stored, and the warning that says so."""

from collections.abc import Mapping
from typing import Any, cast

from recollect.core.secrets import masked
from recollect.families.memories.model import Warned


class Masking:
    """Masks the texts of one call and remembers what it found."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._kinds: dict[str, None] = {}

    def text(self, text: str) -> str:
        if not self._enabled:
            return text
        text, kinds = masked(text)
        self._kinds |= dict.fromkeys(kinds)
        return text

    def object(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._value(value, f"{name}: ") for name, value in values.items()}

    def warnings(self) -> list[Warned]:
        if not self._kinds:
            return []
        found = ", ".join(self._kinds)
        return [Warned("secret_masked", f"Masked before storing: {found}.")]

    def _value(self, value: Any, label: str = "") -> Any:
        """With its label, as the name of a value tells that it is a password."""
        if isinstance(value, str):
            masked_line = self.text(label + value)
            return masked_line.removeprefix(label)
        if isinstance(value, list):
            return [self._value(item, label) for item in cast(list[Any], value)]
        if isinstance(value, dict):
            return self.object(cast(dict[str, Any], value))
        return value
