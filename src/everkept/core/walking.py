"""Walks from record to record along their links."""

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import Literal

from everkept.core.records import Link
from everkept.values import Value

Direction = Literal["out", "in", "both"]


class Hops(Value):
    """How far a walk goes, and along what.

    `sources` are kinds: only links that go out from a record of one of them. Of the links at the
    records of one hop the oldest are followed, up to `limit`; of the records that they lead to the
    walk goes on from those that they name first, up to `width`.
    """

    count: int
    direction: Direction = "both"
    sources: Sequence[str] = ()
    width: int | None = None
    limit: int | None = None


class Sources(Value):
    """The records that link to some others: how many to each, and the links from the newest."""

    counts: Mapping[str, int]
    links: list[Link]


def sources_in(links: Sequence[Link], limit: int) -> Sources:
    """Answer `CountSources` from all the links in their order."""
    about: dict[str, set[str]] = {}
    for link in links:
        about.setdefault(link.target, set()).add(link.source)
    newest = set(islice(dict.fromkeys(link.source for link in reversed(links)), limit))
    return Sources(
        {target: len(sources) for target, sources in about.items()},
        [link for link in links if link.source in newest],
    )


def beyond(links: Iterable[Link], seen: Set[str], width: int | None = None) -> list[str]:
    """Where the links lead that was not seen yet, as they name it: the records of the next hop."""
    ends = dict.fromkeys(end for link in links for end in (link.source, link.target))
    return [end for end in ends if end not in seen][:width]
