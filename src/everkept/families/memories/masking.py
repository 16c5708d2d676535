"""Secrets kept out of what is stored, and the warning that says so."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from everkept.core.secrets import masked, masked_json
from everkept.errors import InvalidInput
from everkept.families.memories.model import RelatedEntity, Source
from everkept.tools.tool import Warned
from everkept.values import replace

T = TypeVar("T")


class Masking:
    """Masks the texts of one call and remembers what it found."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._kinds: dict[str, None] = {}

    def text(self, text: str) -> str:
        return self._noted(*masked(text)) if self._enabled else text

    def optional(self, text: str | None) -> str | None:
        return self.text(text) if text else text

    def texts(self, texts: Sequence[str]) -> list[str]:
        return [self.text(text) for text in texts]

    def object(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The names of values too; they also tell that a value is a password."""
        if not self._enabled:
            return dict(values)
        cleaned, kinds = masked_json(values)
        return self._noted(cast(dict[str, Any], cleaned), kinds)

    def source(self, source: Source) -> Source:
        return replace(source, tool=self.optional(source.tool), file=self.optional(source.file))

    def entities(self, entities: Sequence[RelatedEntity]) -> list[RelatedEntity]:
        return [
            RelatedEntity(self.text(e.name), self.text(e.type), self.text(e.relationship))
            for e in entities
        ]

    def check_id(self, given: str, argument: str) -> None:
        """An id must stay as it is, so a secret in it is refused; the error does not repeat it."""
        if self._enabled and (kinds := masked(given)[1]):
            raise InvalidInput(
                f"`{argument}` holds what looks like a secret ({', '.join(kinds)}).",
                hint="It is stored as it is: use another one.",
                argument=argument,
            )

    def warnings(self) -> list[Warned]:
        if not self._kinds:
            return []
        found = ", ".join(self._kinds)
        return [Warned("secret_masked", f"Masked before storing: {found}.")]

    def _noted(self, cleaned: T, kinds: Sequence[str]) -> T:
        self._kinds |= dict.fromkeys(kinds)
        return cleaned
