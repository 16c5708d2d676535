"""A warning about keys and passwords in what was written; a file keeps what its author wrote."""

import asyncio
from collections.abc import Iterator, Mapping

from everkept.core.secrets import masked
from everkept.tools.tool import Warned

_AT_ONCE = 200_000  # characters; others have their turn between two such stretches


async def scan_warnings(texts: Mapping[str, str]) -> list[Warned] | None:
    """By the names of the files that the texts were written to."""
    found: list[Warned] = []
    for name, text in texts.items():
        kinds: dict[str, None] = {}
        for stretch in _stretches(text):
            kinds |= dict.fromkeys(masked(stretch)[1])
            await asyncio.sleep(0)
        if kinds:
            message = f"{name} holds what looks like a secret ({', '.join(kinds)}); it was kept."
            found.append(Warned("secret_in_file", message))
    return found or None


def _stretches(text: str) -> Iterator[str]:
    """Cut between lines where there are any."""
    at = 0
    while at < len(text):
        end = text.rfind("\n", at, at + _AT_ONCE) + 1
        if end <= at or at + _AT_ONCE >= len(text):
            end = at + _AT_ONCE
        yield text[at:end]
        at = end
