"""The one task that connects a server, keeps the connection, and connects anew after its end."""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

from everkept.core.upstreams import Reach
from everkept.errors import UpstreamUnavailable, visible
from everkept.upstreams.link import Connect, Link, LinkEnded, hiding

PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # seconds between attempts; the last again and again
WORTH_WAITING = 3.0  # seconds that a call waits for the next attempt
SETTLED = 30.0  # seconds; a connection that ends earlier, or of no use, is a setback
CLOSING = 8.0  # seconds; the end of a program takes less

log = logging.getLogger(__name__)

Outcome = Link | UpstreamUnavailable


class Owner:
    """Enters and leaves the connection; those who ask the server send on the link themselves.

    It connects when somebody wants the link, and by itself where the server is to be there all
    the time. A failed attempt is followed by a pause, the longer the more there were; so is a
    connection that ended soon, but for the first of them.
    """

    def __init__(
        self,
        reach: Reach,
        environment: Mapping[str, str],
        connect: Connect,
        pauses: tuple[float, ...] = PAUSES,
    ) -> None:
        self._reach = reach
        self._environment = environment
        self._connect = connect
        self._pauses = pauses
        self._hide = hiding(reach, environment)
        self._tellers: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._link: Link | None = None
        # Why the link is let go; there until it has been left.
        self._over: asyncio.Future[str] | None = None
        self._last_end: tuple[Link, str] | None = None
        self._outcome: asyncio.Future[Outcome] | None = None  # of the attempt that is waited for
        self._has_tried = False
        self._began = 0.0  # when the link was there, by the loop's clock
        self._heard = 0.0  # when the server last answered on it; 0 for never
        self._failure: UpstreamUnavailable | None = None  # of the last attempt, or connection
        self._failures = 0  # in a row
        self._short_lives = 0  # in a row, failures between them or not
        self._next_attempt = 0.0  # by the loop's clock
        self._is_closed = False

    def start(self) -> None:
        if self._is_closed or self._link is not None:
            return
        self._wanted.set()
        if self._task is None:
            # Not in the context of whoever came first: nothing of a client is to be known there.
            self._task = asyncio.create_task(
                self._run(), name=f"owner of {self._reach.name}", context=contextvars.Context()
            )
            self._task.add_done_callback(self._after)

    def on_news(self, tell: Callable[[], None]) -> None:
        self._tellers.append(tell)

    async def linked(self) -> Link:
        """The open link; UpstreamUnavailable where there will be none in good time."""
        if self._is_closed:
            raise self._unavailable("was closed by Everkept.")
        if self._link is not None:
            return self._link
        pause = self._pause_left()
        if pause > WORTH_WAITING:
            raise self._still_failing(pause)
        self.start()
        if self._outcome is None:
            self._outcome = asyncio.get_running_loop().create_future()
        try:
            # The owner gives up in time, and then ends what it has begun.
            async with asyncio.timeout(self._reach.connect_timeout + pause + CLOSING):
                outcome = await asyncio.shield(self._outcome)
        except TimeoutError as error:
            raise self._not_ready("") from error
        if isinstance(outcome, UpstreamUnavailable):
            raise outcome.with_traceback(None)  # it is shared by all who waited
        return outcome

    def hear(self, link: Link) -> None:
        """The server has answered, or told of progress."""
        if link is self._link:
            self._heard = asyncio.get_running_loop().time()

    def is_silent(self, link: Link, since: float) -> bool:
        """Whether it has said nothing since then, and is still the link."""
        return link is self._link and self._heard < since

    def let_go(self, link: Link, reason: str) -> str:
        """Ends the connection, unless it is another by now; gives the reason why it has ended,
        which may have been another."""
        if self._is_released(link, reason):
            now = asyncio.get_running_loop().time()
            is_settled = self._heard > 0.0 and now - self._began >= SETTLED
            self._short_lives = 0 if is_settled else self._short_lives + 1
            self._failure = self._unavailable(f"{reason}.")
            self._next_attempt = now + self._pause()
        ended = self._last_end
        return ended[1] if ended is not None and ended[0] is link else reason

    def _is_released(self, link: Link | None, reason: str) -> bool:
        """Whether it was the link, and has to be left now."""
        if link is None or link is not self._link or self._over is None or self._over.done():
            return False
        self._over.set_result(reason)
        self._link, self._last_end = None, (link, reason)
        return True

    async def close(self) -> None:
        self._is_closed = True
        self._settle(self._unavailable("was closed by Everkept."))
        if self._task is None:
            return
        if self._over is None:
            self._task.cancel()  # it connects, or waits
        else:
            self._is_released(self._link, "was closed by Everkept")
        _, unfinished = await asyncio.wait({self._task}, timeout=CLOSING)
        if unfinished:
            log.warning("%s was not closed within %g s", self._reach.label, CLOSING)
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSING)

    async def _run(self) -> None:
        while not self._is_closed:
            await self._until_due()
            try:
                await self._connected_once()
            except UpstreamUnavailable as error:
                self._failed(error)
            except LinkEnded as ended:
                self._failed(self._unavailable(f"{ended}."))
            except TimeoutError as error:
                self._failed(self._not_ready(_notes(error.__cause__)))

    async def _until_due(self) -> None:
        await asyncio.sleep(self._pause_left())
        if not self._reach.starts_at_once:
            await self._wanted.wait()

    async def _connected_once(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._reach.connect_timeout):
                    link = await stack.enter_async_context(
                        self._connect(self._reach, self._environment, self._tell)
                    )
                await self._keep(link)
        finally:
            self._over = None

    async def _keep(self, link: Link) -> None:
        """Until the server ends it, or we do."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[str] = loop.create_future()
        self._link, self._over = link, over
        self._began, self._heard = loop.time(), 0.0
        self._failure, self._failures = None, 0
        self._settle(link)
        if self._has_tried:
            self._tell()
        self._has_tried = True
        watching = asyncio.create_task(self._watch(link), name=f"end of {self._reach.name}")
        try:
            log.info("%s %s", self._reach.label, visible(self._hide(await over)))
        finally:
            self._link = None
            watching.cancel()

    async def _watch(self, link: Link) -> None:
        self.let_go(link, await link.ended())

    def _failed(self, error: UpstreamUnavailable) -> None:
        log.warning("%s", visible(self._hide(error.message)))
        self._has_tried = True
        self._failure = error
        self._failures += 1
        self._next_attempt = asyncio.get_running_loop().time() + self._pause()
        self._settle(error)

    def _after(self, task: asyncio.Task[None]) -> None:
        """The next one who asks starts it anew, should it ever have ended by a bug."""
        self._task = None if not self._is_closed else task
        if not task.cancelled() and (bug := task.exception()) is not None:
            log.error("the owner of %s has ended", self._reach.label, exc_info=bug)
            self._settle(self._unavailable("cannot be asked: an internal error is in the log."))

    def _settle(self, outcome: Outcome) -> None:
        self._wanted.clear()  # all who came during the attempt have what they wanted
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(outcome)
        self._outcome = None

    def _tell(self) -> None:
        loop = asyncio.get_running_loop()
        for tell in self._tellers:
            loop.call_soon(tell)

    def _pause(self) -> float:
        setbacks = self._failures + max(self._short_lives - 1, 0)
        return self._pauses[min(setbacks, len(self._pauses)) - 1] if setbacks else 0.0

    def _pause_left(self) -> float:
        return max(0.0, self._next_attempt - asyncio.get_running_loop().time())

    def _still_failing(self, pause: float) -> UpstreamUnavailable:
        assert self._failure is not None
        return UpstreamUnavailable(
            self._reach.label,
            f"cannot be reached, and is tried again in {pause:.0f} s: {self._failure.message}",
            hint=self._failure.hint,
            retry_possible=self._failure.retry_possible,
            retry_in_seconds=round(pause, 1),
        )

    def _not_ready(self, said: str) -> UpstreamUnavailable:
        words = f" It wrote: {said}." if said else ""
        return UpstreamUnavailable(
            self._reach.label,
            f"was not ready within {self._reach.connect_timeout:g} s.{words}",
            hint="`connectTimeout` gives it longer.",
        )

    def _unavailable(self, reason: str) -> UpstreamUnavailable:
        return UpstreamUnavailable(self._reach.label, reason)


def _notes(given_up: BaseException | None) -> str:
    """What a server had written when its connection was given up: see link.Connect."""
    return " / ".join(getattr(given_up, "__notes__", []))
