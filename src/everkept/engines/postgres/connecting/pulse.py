"""Whether a PostgreSQL server is there: who is frozen keeps its connections, and says nothing."""

import asyncio
import struct
import time
from contextlib import suppress

SIGN_OF_LIFE = 3.0  # seconds that it may take
FRESH = 1.0  # seconds for which one is as good as another

# "Do you speak TLS?": what every server, and every pooler before one, answers to anybody.
_QUESTION = struct.pack("!ii", 8, 80877103)


class Pulse:
    """Felt once for all who want to know in the same moment."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._felt_at = -FRESH
        self._feeling: asyncio.Task[bool] | None = None

    async def beats(self) -> bool:
        if time.monotonic() - self._felt_at < FRESH:
            return True
        loop = asyncio.get_running_loop()
        feeling = self._feeling
        if feeling is None or feeling.done() or feeling.get_loop() is not loop:
            feeling = self._feeling = loop.create_task(self._feel())
        return await asyncio.shield(feeling)

    async def _feel(self) -> bool:
        try:
            async with asyncio.timeout(SIGN_OF_LIFE):
                answer = await self._answer()
        except (OSError, TimeoutError):
            return False
        if answer:
            self._felt_at = time.monotonic()
        return bool(answer)

    async def _answer(self) -> bytes:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(_QUESTION)
            await writer.drain()
            return await reader.read(1)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
