"""A trial from start to end: workers with servers of their own, which are killed at random."""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from everkept.cli.trial.ledger import Fact, Ledger
from everkept.cli.trial.workers import HUB, KIND, PROJECTS, Client, Mover, Writer
from everkept.values import Value

TICK = 0.05  # seconds
KILL_EVERY = 0.3  # seconds, on average
PATIENCE = 30.0  # seconds without an answer that count as a failure

Show = Callable[[float, int, int], None]  # seconds since the start, calls acknowledged, kills


class Trial(Value):
    """What happened, and what it was promised to have led to."""

    ledger: Ledger
    seconds: float
    latencies: list[float]  # of acknowledged calls, in seconds, shortest first
    kills: int
    moves: int
    refused: int
    problems: list[str]


def run_trial(data_dir: Path, writers: int, seconds: float, log: IO[bytes], show: Show) -> Trial:
    """Whatever happens, no server is left when it returns."""
    stage = _Stage(data_dir, log)
    try:
        return stage.play(writers, seconds, show)
    finally:
        stage.clear()


class _Stage:
    def __init__(self, data_dir: Path, log: IO[bytes]) -> None:
        self._data_dir = data_dir
        self._log = log
        self._stop = threading.Event()
        self._clients: list[Client] = []
        self._threads: list[threading.Thread] = []
        self._finished: list[Writer | Mover] = []
        self._problems: list[str] = []
        self._kills = 0

    def play(self, size: int, seconds: float, show: Show) -> Trial:
        ledger = self._prepare()
        writers = [
            Writer(self._client(str(number)), number, self._stop, random.Random())
            for number in range(1, size + 1)
        ]
        mover = Mover(self._client("mover"), self._stop, random.Random())
        for client in self._clients:
            client.begin()
        began = time.monotonic()
        for worker in (*writers, mover):
            self._threads.append(threading.Thread(target=self._work, args=(worker,), daemon=True))
            self._threads[-1].start()
        self._disturb(
            began + seconds,
            lambda now: show(now - began, sum(len(w.latencies) for w in writers), self._kills),
        )
        elapsed = time.monotonic() - began
        self._await_workers()
        for writer in writers:
            ledger.include(writer.ledger)
            self._problems += writer.problems
        return Trial(
            ledger,
            elapsed,
            sorted(latency for writer in writers for latency in writer.latencies),
            self._kills,
            mover.moves,
            sum(writer.refused for writer in writers),
            self._problems + mover.problems,
        )

    def clear(self) -> None:
        """Ends what still runs, also when a person has had enough."""
        self._stop.set()
        for thread in self._threads:
            while thread.is_alive():
                self._kill_all()
                thread.join(TICK)
        self._kill_all()
        for client in self._clients:
            client.wire.close()

    def _client(self, name: str) -> Client:
        self._clients.append(Client(self._data_dir, name, self._log))
        return self._clients[-1]

    def _prepare(self) -> Ledger:
        """Makes the projects, with what all writers share."""
        client = self._client("setup")
        client.begin()
        ledger = Ledger()
        for project in PROJECTS:
            client.call("create_project", {"name": project})
            ledger.attempt(project)
            hub = {"name": HUB, "entity_type": KIND}
            client.call("create_entities", {"project": project, "entities": [hub]})
            ledger.acknowledge(project, stored=[Fact(project, HUB)])
        self._clients.remove(client)
        client.wire.close()
        return ledger

    def _work(self, worker: Writer | Mover) -> None:
        worker.run()
        self._finished.append(worker)

    def _disturb(self, deadline: float, show: Callable[[float], None]) -> None:
        """Kills a server now and then until the time is over."""
        now = time.monotonic()
        next_kill = now + random.expovariate(1 / KILL_EVERY)
        while (now := time.monotonic()) < deadline:
            if now > next_kill:
                self._kills += random.choice(self._clients).wire.kill()
                next_kill = now + random.expovariate(1 / KILL_EVERY)
            self._kill_silent()
            show(now)
            time.sleep(min(TICK, max(0.0, next_kill - now)))

    def _await_workers(self) -> None:
        """Lets each finish its last call, and the mover bring back what it has put away."""
        self._stop.set()
        for thread in self._threads:
            while thread.is_alive():
                self._kill_silent()
                thread.join(TICK)
        if len(self._finished) < len(self._threads):
            self._problems.append("a writer of the trial itself failed; see its traceback")

    def _kill_silent(self) -> None:
        for client in self._clients:
            since = client.wire.waiting_since
            if since is not None and time.monotonic() - since > PATIENCE:
                self._problems.append(f"a server did not answer for {PATIENCE:.0f} seconds")
                client.wire.kill()

    def _kill_all(self) -> None:
        for client in self._clients:
            client.wire.kill()
