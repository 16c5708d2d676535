"""What every way to another server comes down to: an open connection that takes requests."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from everkept.core.sessions import Report
from everkept.core.upstreams import JSON, Reach

NOT_KNOWN = "Whether the call took effect is not known, so it was not repeated."


class LinkEnded(Exception):
    """The connection is gone: the message says why, as the end of a sentence about the server."""


class NotSent(LinkEnded):
    """It was gone before the server took the request: on a new connection it may be sent again."""


class Link(Protocol):
    """An open connection to a server that has been greeted, in the era that it speaks.

    Requests may run side by side, from any task. One that is cancelled is cancelled there too.
    """

    async def request(
        self, method: str, params: Mapping[str, Any], report: Report | None = None
    ) -> JSON:
        """The result as it came. UpstreamError for an answer that is an error, LinkEnded where no
        answer will come. Waits as long as it takes: the caller knows how patient it is."""
        ...

    async def probe(self) -> None:
        """Returns once the server has answered anything at all; LinkEnded like above."""
        ...

    async def ended(self) -> str:
        """Waits until the connection is gone, and says why."""
        ...


# Opened and closed by one task: Link for a server, our environment, and whom to tell when the
# server says that its tools have changed. Raises UpstreamUnavailable where it cannot be reached;
# the caller bounds the time: a note on its CancelledError is what the server has written so far.
Connect = Callable[
    [Reach, Mapping[str, str], Callable[[], None]], AbstractAsyncContextManager[Link]
]
