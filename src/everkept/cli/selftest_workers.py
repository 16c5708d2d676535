"""Processes of a selftest that write, read or move projects."""

import json
import random
import string
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, cast

from everkept.cli.selftest_ledger import SelftestFact, SelftestLedger
from everkept.values import Value, replace

if TYPE_CHECKING:
    from everkept.cli.selftest_servers import ForkedServer

JSON = dict[str, Any]

PROTOCOL_VERSION = "2025-06-18"
CLOSE_SECONDS = 5.0  # for a server to end by itself
LIFE_CALLS = 2  # that most servers answer on average, at least
ARCHIVED = "project_archived"
ALREADY_SO = "project_status"  # the project is already archived, or already restored
# The local copy of an unreachable database may lack what a server that was killed has written.
MISSING_IN_COPY = ("not_found", ALREADY_SO)


class ServerGone(Exception):
    """The server ended before it answered, so the outcome is unknown."""


class CallFailed(Exception):
    """The server answered with an error."""

    def __init__(self, code: str, message: str, *, retry_possible: bool = False, is_degraded: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.retry_possible = retry_possible
        self.is_degraded = is_degraded

    @property
    def is_expected(self) -> bool:
        """Whether a call may fail so because of the faults of the selftest."""
        return self.retry_possible or self.code == ARCHIVED or (self.is_degraded and self.code in MISSING_IN_COPY)


class SelftestConnection:
    """Connection to one server. Any thread may call `kill`, one thread the rest."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        log: IO[bytes] | int = subprocess.DEVNULL,
        process: "ForkedServer | None" = None,
    ) -> None:
        """Start a server, or use one that was started."""
        self._process = process or subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment
        )
        self._requests = 0
        self._is_killed = False
        self.answers = 0
        self.least_answers = 1 + random.expovariate(1 / LIFE_CALLS)  # before it is killed
        self.waiting_since: float | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def initialize(self, name: str, version: str = "1") -> JSON:
        answer = self.request(
            "initialize",
            {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": {"name": name, "version": version}},
        )
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def call(self, tool: str, arguments: JSON) -> JSON:
        """Return the structured answer of a tool."""
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        structured: JSON = result.get("structuredContent") or {}
        if result.get("isError"):
            raise CallFailed(
                structured.get("error", "tool_error"),
                structured.get("message", str(result.get("content"))),
                retry_possible=structured.get("retry_possible", False),
                is_degraded=structured.get("degraded", False),
            )
        return structured

    def request(self, method: str, params: JSON) -> JSON:
        self._requests += 1
        self.waiting_since = time.monotonic()
        try:
            self._send({"jsonrpc": "2.0", "id": self._requests, "method": method, "params": params})
            answer = self._read_answer()
        finally:
            self.waiting_since = None
        self.answers += 1
        if "error" in answer:
            raise CallFailed(str(answer["error"]["code"]), answer["error"]["message"])
        return cast(JSON, answer["result"])

    def kill(self) -> bool:
        """Kill the server without cleanup. Return False if it had ended or was killed before."""
        is_first = not self._is_killed and self._process.poll() is None
        self._is_killed = True
        self._process.kill()
        return is_first

    def close(self) -> None:
        """End the server as a client does, by closing its input. Kill it if it does not end."""
        process = self._process
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # the rest for a dead server cannot be flushed
                    pipe.close()
        try:
            process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _send(self, message: JSON) -> None:
        pipe = cast(IO[bytes], self._process.stdin)
        try:
            pipe.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
            pipe.flush()
        except OSError as error:
            raise ServerGone from error

    def _read_answer(self) -> JSON:
        """Return the answer to the last request, and skip notifications."""
        pipe = cast(IO[bytes], self._process.stdout)
        while True:
            line = pipe.readline()
            if not line.endswith(b"\n"):
                raise ServerGone
            message: JSON = json.loads(line)
            if message.get("id") == self._requests and "method" not in message:
                return message


PROJECT_NAMES = ("trial one", "trial two")
HUB_NAME = "hub"  # in each project; all relations lead to it
BOARD_NAME = "board"  # in each project; all writers describe it, and readers read it
ENTITY_TYPE = "trial"
RELATION_VERB = "belongs_to"

MOVE_SECONDS = 1.5  # on average
ATTEMPT_SECONDS = 0.05  # between attempts to archive or restore a project
MAX_ATTEMPTS = 2_400
REFUSED_SECONDS = 0.002  # before the next call

OUTCOME_UNKNOWN = "memory_unavailable"  # the connection to the database broke during a write

_SENTENCE = """
    the server keeps every memory of a project in one file and answers while others write because
    readers never wait people ask for names dates decisions reasons tools owners places and limits
"""
_VOCABULARY = _SENTENCE.split()


class SelftestWrite(Value):
    """Call that changes data, with the facts that it stores or removes."""

    tool: str
    arguments: JSON
    stored: tuple[SelftestFact, ...] = ()
    removed: tuple[SelftestFact, ...] = ()
    is_shared: bool = False  # other writers may have stored the same before


class SelftestClient:
    """Client with its own server, which it restarts when that has ended."""

    def __init__(self, launch: Callable[[], SelftestConnection], name: str) -> None:
        self._launch = launch
        self._name = name
        self.starts = 0
        self.wire = self._start()

    def call(self, tool: str, arguments: JSON) -> JSON:
        return self.wire.call(tool, arguments)

    def restart(self) -> None:
        self.wire.close()
        self.wire = self._start()
        self.begin()

    def begin(self) -> None:
        self.wire.initialize("selftest", self._name)

    def _start(self) -> SelftestConnection:
        self.starts += 1
        return self._launch()

    def revive(self, stop: threading.Event) -> bool:
        """Return whether a server runs again. It may be killed before its first answer."""
        while not stop.is_set():
            try:
                self.restart()
            except (ServerGone, CallFailed):
                continue
            return True
        return False


class SelftestWriter:
    """Writes, repeats or abandons calls that a kill left unanswered, and updates the ledger."""

    def __init__(self, client: SelftestClient, number: int, stop: threading.Event, chance: random.Random):
        self.client = client
        self.ledger = SelftestLedger()
        self.latencies: list[float] = []
        self.refusals: Counter[str] = Counter()  # by code
        self.problems: list[str] = []
        self.shared: list[SelftestFact] = []  # acknowledged, and never deleted
        self._stop = stop
        self._chance = chance
        self._number = number
        self._made = 0
        self._entities: dict[SelftestFact, set[SelftestFact]] = {}  # with what belongs to each

    def run(self) -> None:
        while not self._stop.is_set():
            self._carry_out(self._choose_write())

    def _carry_out(self, write: SelftestWrite) -> None:
        project = write.arguments["project"]
        is_first = True
        while True:
            started = time.perf_counter()
            self.ledger.attempt(project)
            try:
                answer = self.client.call(write.tool, write.arguments)
            except ServerGone:
                is_first = False
                if not self.client.revive(self._stop) or self._chance.random() < 0.5:
                    self._abandon(write)
                    return
            except CallFailed as error:
                if error.code == OUTCOME_UNKNOWN and self._chance.random() < 0.5 and not self._stop.is_set():
                    is_first = False
                    continue
                self._note_failure(error)
                if not is_first or error.code == OUTCOME_UNKNOWN:
                    self._abandon(write)
                return
            else:
                self.latencies.append(time.perf_counter() - started)
                if write.removed and not answer["deleted"]:
                    self._note_no_deletion(write, is_first=is_first, is_degraded=answer.get("degraded", False))
                else:
                    self._acknowledge(write, surely_changed=is_first and not write.is_shared)
                return

    def _note_failure(self, error: CallFailed) -> None:
        if error.is_expected:
            self.refusals[error.code] += 1
            self._stop.wait(REFUSED_SECONDS)
        else:
            self.problems.append(str(error))

    def _note_no_deletion(self, write: SelftestWrite, *, is_first: bool, is_degraded: bool) -> None:
        """Note the answer that there was nothing to delete."""
        if is_degraded and is_first:
            self.refusals["missing in the local copy"] += 1
        elif is_degraded:
            self._abandon(write)
        elif is_first:
            self.problems.append(f"{write.tool} did not find an acknowledged fact")
        else:
            self._acknowledge(write, surely_changed=False)

    def _acknowledge(self, write: SelftestWrite, *, surely_changed: bool) -> None:
        self.ledger.acknowledge(
            write.arguments["project"], stored=write.stored, removed=write.removed, surely_changed=surely_changed
        )
        for fact in write.removed:
            self._forget(fact)
        if write.is_shared:
            self.shared += write.stored
        else:
            for fact in write.stored:
                self._entities.setdefault(SelftestFact(fact.project, fact.entity), set()).add(fact)

    def _abandon(self, write: SelftestWrite) -> None:
        for fact in write.removed:
            self._forget(fact)
        self.ledger.abandon((*write.stored, *write.removed))

    def _forget(self, fact: SelftestFact) -> None:
        self._entities.pop(fact, None)
        self._entities.get(SelftestFact(fact.project, fact.entity), set()).discard(fact)

    def _choose_write(self) -> SelftestWrite:
        kind = self._chance.random()
        if kind < 0.05:
            return self._build_board_observation()
        if kind < 0.5 or not self._entities:
            return self._build_creation()
        entity = self._chance.choice(list(self._entities)[-50:])
        belongings = sorted(self._entities[entity] - {entity}, key=str)
        if kind < 0.7:
            return _build_observation(entity, self._build_text())
        if kind < 0.85 and not any(fact.target for fact in belongings):
            return _build_relation(entity)
        if kind < 0.95 and belongings:
            return _build_deletion(self._chance.choice(belongings))
        return _build_deletion(entity, *belongings)

    def _build_creation(self) -> SelftestWrite:
        self._made += 1
        entity = SelftestFact(self._chance.choice(PROJECT_NAMES), f"writer {self._number} entity {self._made}")
        texts = [self._build_text() for _ in range(2)]
        described = {"name": entity.entity, "entity_type": ENTITY_TYPE, "observations": texts}
        observations = (SelftestFact(entity.project, entity.entity, text=text) for text in texts)
        return SelftestWrite(
            "create_entities", {"project": entity.project, "entities": [described]}, stored=(entity, *observations)
        )

    def _build_board_observation(self) -> SelftestWrite:
        """Count across all writers, so that several write the same text at the same time."""
        self._made += 1
        text = f"round {self._made // 20}"
        return replace(
            _build_observation(SelftestFact(self._chance.choice(PROJECT_NAMES), BOARD_NAME), text), is_shared=True
        )

    def _build_text(self) -> str:
        # Only letters: one word for the index.
        unique = "".join(self._chance.choices(string.ascii_lowercase, k=12))
        words = self._chance.choices(_VOCABULARY, k=self._chance.randint(7, 19))
        return " ".join([unique, *words])


class SelftestReader:
    """Reads what writers wrote through another server, and notes acknowledged facts that are missing."""

    def __init__(
        self, client: SelftestClient, list_shared: Callable[[], list[SelftestFact]], stop: threading.Event
    ) -> None:
        self.client = client
        self.reads = 0
        self.local_reads = 0  # from the copy that a server has of an unreachable database
        self.problems: list[str] = []
        self._list_shared = list_shared
        self._stop = stop

    def run(self) -> None:
        while not self._stop.is_set():
            for project in PROJECT_NAMES:
                self._read(project)

    def _read(self, project: str) -> None:
        wanted = {str(fact.text) for fact in self._list_shared() if fact.project == project}
        try:
            answer = self.client.call("open_nodes", {"names": [BOARD_NAME], "project": project})
        except ServerGone:
            self.client.revive(self._stop)
            return
        except CallFailed as error:
            if not error.is_expected:
                self.problems.append(str(error))
            self._stop.wait(REFUSED_SECONDS)
            return
        if answer.get("degraded"):  # the local copy may be older
            self.local_reads += 1
            return
        found = {observation["content"] for entity in answer["entities"] for observation in entity["observations"]}
        self.reads += 1
        if missing := wanted - found:
            self.problems.append(f"a read of {project} missed acknowledged facts, such as {min(missing)}")


class ProjectMover:
    """Archives and restores projects while writers write."""

    def __init__(
        self, client: SelftestClient, stop: threading.Event, abort: threading.Event, chance: random.Random
    ) -> None:
        self.client = client
        self._abort = abort
        self.moves = 0
        self.problems: list[str] = []
        self._stop = stop
        self._chance = chance

    def run(self) -> None:
        while not self._stop.wait(self._chance.uniform(0.5, 1.5) * MOVE_SECONDS):
            project = self._chance.choice(PROJECT_NAMES)
            is_away = self._move(project, "archive_project", "archived")
            if is_away:
                self._stop.wait(self._chance.uniform(0.0, 0.1))
            # Also after a failed attempt, because its server may have been killed since.
            self._move(project, "restore_project", "active")
            self.moves += is_away

    def _move(self, project: str, tool: str, wanted: str) -> bool:
        """Try until it is done. After the end of the selftest, only a restore continues."""
        is_repeated = False
        for _ in range(MAX_ATTEMPTS):
            if self._abort.is_set():
                return False
            if self._stop.is_set() and wanted == "archived":
                return False
            try:
                status, is_degraded = self._read_status(project)
                if status == wanted:
                    return True
                is_repeated = is_repeated or is_degraded
                self.client.call(tool, {"name": project})
            except ServerGone:
                is_repeated = True
                with suppress(ServerGone, CallFailed):  # the next call notices
                    self.client.restart()
            except CallFailed as error:
                if not error.is_expected and not (is_repeated and error.code == ALREADY_SO):
                    self.problems.append(str(error))
                is_repeated = is_repeated or error.code == OUTCOME_UNKNOWN
                time.sleep(ATTEMPT_SECONDS)
        self.problems.append(f"{tool} did not succeed in {MAX_ATTEMPTS} attempts")
        return False

    def _read_status(self, project: str) -> tuple[str, bool]:
        """Return the status, and whether it is from a local copy, which may be older."""
        answer = self.client.call("list_projects", {"status": "all"})
        status = next((entry["status"] for entry in answer["projects"] if entry["name"] == project), "")
        return status, answer.get("degraded", False)


def _build_observation(entity: SelftestFact, text: str) -> SelftestWrite:
    return SelftestWrite(
        "add_observations",
        {"project": entity.project, "observations": [{"entity_name": entity.entity, "contents": [text]}]},
        stored=(replace(entity, text=text),),
    )


def _build_relation(entity: SelftestFact) -> SelftestWrite:
    fact = replace(entity, target=HUB_NAME)
    arguments = {"project": entity.project, "relations": [_build_relation_arguments(fact)]}
    return SelftestWrite("create_relations", arguments, stored=(fact,))


def _build_relation_arguments(fact: SelftestFact) -> JSON:
    return {"from": fact.entity, "to": fact.target, "relation_type": RELATION_VERB}


def _build_deletion(fact: SelftestFact, *belongings: SelftestFact) -> SelftestWrite:
    """Delete an observation, a relation, or an entity with its data."""
    arguments: JSON = {"project": fact.project}
    if fact.text is not None:
        tool = "delete_observations"
        arguments["deletions"] = [{"entity_name": fact.entity, "observations": [fact.text]}]
    elif fact.target is not None:
        tool = "delete_relations"
        arguments["relations"] = [_build_relation_arguments(fact)]
    else:
        tool = "delete_entities"
        arguments["names"] = [fact.entity]
    return SelftestWrite(tool, arguments, removed=(fact, *belongings))
