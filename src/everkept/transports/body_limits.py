"""Limit of the bytes of requests that an account has under way. Each could otherwise send many large ones together."""

from collections import Counter
from contextlib import ExitStack

from everkept.core.mcp import MAX_MESSAGE_BYTES
from everkept.core.sessions import Account
from everkept.transports.http_exchange import Message, Receive, RequestRejected, build_rate_limited

MAX_ACCOUNT_BYTES = 4 * MAX_MESSAGE_BYTES
WAIT_SECONDS = 1.0


class BodyLimits:
    """Bytes of the requests under way, by account. The owner has no limit."""

    def __init__(self, most: int = MAX_ACCOUNT_BYTES) -> None:
        self._most = most
        self._bytes: Counter[str] = Counter()

    def limit(self, account: Account | None, receive: Receive, held: ExitStack) -> Receive:
        """Return a `receive` that counts until `held` ends, and raises RequestRejected above the limit."""
        if account is None:
            return receive
        key, own = account.name, 0

        def release() -> None:
            self._bytes[key] -= own
            if not self._bytes[key]:
                del self._bytes[key]

        async def count() -> Message:
            nonlocal own
            message = await receive()
            size = len(message.get("body", b""))
            if self._bytes[key] + size > self._most:
                raise RequestRejected(
                    build_rate_limited("The requests of this account under way are too large together.", WAIT_SECONDS)
                )
            own += size
            self._bytes[key] += size
            return message

        held.callback(release)
        return count
