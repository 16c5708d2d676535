"""Processes of a selftest that write or move projects, and the acknowledgements they got."""

import json
import random
import string
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from everkept.app.app import App
from everkept.clients.own_command import ISOLATED_MODULE
from everkept.core.ports import RecordStore
from everkept.core.sessions import Session
from everkept.settings import build_unset_environment, read_settings
from everkept.values import Value, field, replace

SEARCH_SAMPLE = 100  # acknowledged observations to search by a word
_PAGE_ROWS = 1_000
_SIGNS = {"insert": 1, "restore": 1, "delete": -1, "update": 0}


class SelftestFact(Value):
    """Entity, one of its observations (`text`), or a relation to another one (`target`)."""

    project: str
    entity: str
    text: str | None = None
    target: str | None = None


class SelftestLedger:
    """State that the servers' answers promise, fact by fact."""

    def __init__(self) -> None:
        self.promised: dict[SelftestFact, bool] = {}  # False: deleted
        self.unanswered: list[frozenset[SelftestFact]] = []  # each stored completely or not at all
        self.surely_changed: Counter[str] = Counter()  # calls by project
        self.possibly_changed: Counter[str] = Counter()

    def attempt(self, project: str) -> None:
        """Note a call before it is sent."""
        self.possibly_changed[project] += 1

    def acknowledge(
        self,
        project: str,
        *,
        stored: Iterable[SelftestFact] = (),
        removed: Iterable[SelftestFact] = (),
        surely_changed: bool = True,
    ) -> None:
        """Note the answer to a call. A repeated call may have changed nothing."""
        self.promised.update(dict.fromkeys(stored, True))
        self.promised.update(dict.fromkeys(removed, False))
        self.surely_changed[project] += surely_changed

    def abandon(self, facts: Iterable[SelftestFact]) -> None:
        """Note that a call about these facts was not answered and will not be repeated."""
        group = frozenset(facts)
        for fact in group:
            self.promised.pop(fact, None)
        self.unanswered.append(group)

    def include(self, other: "SelftestLedger") -> None:
        """Add the answers to another writer. Both may share facts that neither deletes."""
        self.promised.update(other.promised)
        self.unanswered += other.unanswered
        self.surely_changed += other.surely_changed
        self.possibly_changed += other.possibly_changed


class SelftestVerdict(Value, frozen=False):
    """Comparison of the library with the ledger."""

    acknowledged: int = 0
    found: int = 0
    lost: int = 0
    duplicates: int = 0
    torn: int = 0  # unanswered calls that were stored in part
    unasked: int = 0  # stored without a call, or although the call was refused
    searched: int = 0
    unsearchable: int = 0
    changes: int = 0
    problems: list[str] = field(default_factory=list[str])

    @property
    def is_good(self) -> bool:
        wrong = self.lost + self.duplicates + self.torn + self.unasked + self.unsearchable
        return not wrong and not self.problems


async def judge(data_dir: Path, ledger: SelftestLedger) -> SelftestVerdict:
    """Open the library again and count missing, duplicate and unrequested facts."""
    app = App(read_settings({"data_dir": data_dir}, {}))
    verdict = SelftestVerdict()
    try:
        stored: Counter[SelftestFact] = Counter()
        for project in await app.library.list_projects():
            stored += await _read_facts(app, project.name)
            _, store = await app.library.open(project.name)
            changes, live = await _replay_log(store)
            findings = await store.find_faults()
            findings += _find_log_mismatches(project.name, ledger, changes, live, await store.count_live())
            verdict.problems += [f"{project.name}: {finding}" for finding in findings]
            verdict.changes += changes
        _compare(verdict, ledger, stored)
        await _search_sample(app, verdict, ledger, stored)
    finally:
        await app.close()
    return verdict


def _compare(verdict: SelftestVerdict, ledger: SelftestLedger, stored: Counter[SelftestFact]) -> None:
    kept = sum((stored[fact] > 0) == is_there for fact, is_there in ledger.promised.items())
    verdict.acknowledged = len(ledger.promised)
    verdict.found = kept
    verdict.lost = verdict.acknowledged - kept
    verdict.duplicates = sum(count - 1 for count in stored.values() if count > 1)
    verdict.torn = sum(
        len({stored[fact] > 0 for fact in group - ledger.promised.keys()}) > 1 for group in ledger.unanswered
    )
    open_ended = frozenset[SelftestFact]().union(*ledger.unanswered)
    verdict.unasked = len(stored.keys() - ledger.promised.keys() - open_ended)


async def _read_facts(app: App, project: str) -> Counter[SelftestFact]:
    """Return all facts of a project, as a client reads them."""
    found: Counter[SelftestFact] = Counter()
    arguments: dict[str, Any] = {"project": project, "limit": _PAGE_ROWS}
    while True:
        page = (await app.call(Session(), "read_graph", arguments)).facts
        for entity in page["entities"]:
            found[SelftestFact(project, entity["name"])] += 1
            found.update(
                SelftestFact(project, entity["name"], text=observation["content"])
                for observation in entity["observations"]
            )
        found.update(SelftestFact(project, relation["from"], target=relation["to"]) for relation in page["relations"])
        if page.get("next_cursor") is None:
            return found
        arguments["cursor"] = page["next_cursor"]


def _find_log_mismatches(
    project: str, ledger: SelftestLedger, changes: int, logged: Counter[str], counted: Mapping[str, int]
) -> list[str]:
    """Find differences between the change log and the calls or the stored data."""
    findings: list[str] = []
    least, most = ledger.surely_changed[project], ledger.possibly_changed[project]
    if not least <= changes <= most:
        findings.append(f"{changes} changes in the log, not {least} to {most}")
    live = {"link": counted["link"], "record": sum(counted.values()) - counted["link"]}
    findings += [
        f"the log makes {logged[subject]} live {subject}s, the tables have {number}"
        for subject, number in live.items()
        if logged[subject] != number
    ]
    return findings


async def _replay_log(store: RecordStore) -> tuple[int, Counter[str]]:
    """Return the number of changes in the log, and how many records and links they leave."""
    seen, after = 0, 0
    live: Counter[str] = Counter()
    while changes := await store.read_changes(after=after, limit=_PAGE_ROWS):
        for change in changes:
            for edit in change.edits:
                live[edit.subject] += _SIGNS[edit.operation]
        seen += len(changes)
        after = changes[-1].seq
    return seen, live


async def _search_sample(
    app: App, verdict: SelftestVerdict, ledger: SelftestLedger, stored: Counter[SelftestFact]
) -> None:
    """Search a sample of observations by their unique first word."""
    kept = [fact for fact, is_there in ledger.promised.items() if is_there and stored[fact]]
    observations = [fact for fact in kept if fact.text]
    for fact in random.sample(observations, min(SEARCH_SAMPLE, len(observations))):
        arguments = {"query": (fact.text or "").split()[0], "project": fact.project, "limit": 100}
        result = await app.call(Session(), "search_nodes", arguments)
        verdict.searched += 1
        names = {entity["name"] for entity in result.facts["entities"]}
        verdict.unsearchable += fact.entity not in names


JSON = dict[str, Any]

PROTOCOL_VERSION = "2025-06-18"
CLOSE_SECONDS = 5.0  # for a server to end by itself


class ServerGone(Exception):
    """The server ended before it answered, so the outcome is unknown."""


class CallFailed(Exception):
    """The server answered with an error."""

    def __init__(self, code: str, message: str, *, retry_possible: bool = False) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.retry_possible = retry_possible


class SelftestConnection:
    """Connection to one server. Any thread may call `kill`, one thread the rest."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        log: IO[bytes] | int = subprocess.DEVNULL,
    ) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment
        )
        self._requests = 0
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
        if "error" in answer:
            raise CallFailed(str(answer["error"]["code"]), answer["error"]["message"])
        return cast(JSON, answer["result"])

    def kill(self) -> bool:
        """Kill the server without cleanup. Return False if it had ended."""
        is_running = self._process.poll() is None
        self._process.kill()
        return is_running

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
HUB_NAME = "hub"  # in each project; all relations lead to it, and all writers describe it
ENTITY_TYPE = "trial"
RELATION_VERB = "belongs_to"

MOVE_SECONDS = 1.5  # on average
MAX_ATTEMPTS = 200  # to archive or restore a project

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

    def __init__(self, data_dir: Path, name: str, log: IO[bytes]) -> None:
        self._command = (
            *(sys.executable, *ISOLATED_MODULE, "serve", "--data-dir", str(data_dir)),
            *("--transport", "stdio", "--dialect", "everkept", "--toolsets", "graph"),
        )
        self._name = name
        self._log = log
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
        return SelftestConnection(self._command, environment=build_unset_environment(), log=self._log)


class SelftestWriter:
    """Writes, repeats or abandons calls that a kill left unanswered, and updates the ledger."""

    def __init__(self, client: SelftestClient, number: int, stop: threading.Event, chance: random.Random):
        self.client = client
        self.ledger = SelftestLedger()
        self.latencies: list[float] = []
        self.refused = 0  # calls to an archived or busy project
        self.problems: list[str] = []
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
                self.client.call(write.tool, write.arguments)
            except ServerGone:
                is_first = False
                if not self._revive() or self._chance.random() < 0.5:
                    self._abandon(write)
                    return
            except CallFailed as error:
                self._note_failure(error)
                if not is_first:
                    self._abandon(write)
                return
            else:
                self.latencies.append(time.perf_counter() - started)
                self._acknowledge(write, surely_changed=is_first and not write.is_shared)
                return

    def _revive(self) -> bool:
        """Return whether a server runs again. It may be killed before its first answer."""
        while not self._stop.is_set():
            try:
                self.client.restart()
            except ServerGone:
                continue
            return True
        return False

    def _note_failure(self, error: CallFailed) -> None:
        if error.retry_possible or error.code == "project_archived":
            self.refused += 1
            self._stop.wait(0.002)
        else:
            self.problems.append(str(error))

    def _acknowledge(self, write: SelftestWrite, *, surely_changed: bool) -> None:
        self.ledger.acknowledge(
            write.arguments["project"], stored=write.stored, removed=write.removed, surely_changed=surely_changed
        )
        for fact in write.removed:
            self._forget(fact)
        if not write.is_shared:
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
            return self._build_hub_observation()
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

    def _build_hub_observation(self) -> SelftestWrite:
        """Count across all writers, so that several write the same text at the same time."""
        self._made += 1
        text = f"round {self._made // 20}"
        return replace(
            _build_observation(SelftestFact(self._chance.choice(PROJECT_NAMES), HUB_NAME), text), is_shared=True
        )

    def _build_text(self) -> str:
        # Only letters: one word for the index.
        unique = "".join(self._chance.choices(string.ascii_lowercase, k=12))
        words = self._chance.choices(_VOCABULARY, k=self._chance.randint(7, 19))
        return " ".join([unique, *words])


class ProjectMover:
    """Archives and restores projects while writers write."""

    def __init__(self, client: SelftestClient, stop: threading.Event, chance: random.Random) -> None:
        self.client = client
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
        for _ in range(MAX_ATTEMPTS):
            if self._stop.is_set() and wanted == "archived":
                return False
            try:
                if self._read_status(project) == wanted:
                    return True
                self.client.call(tool, {"name": project})
            except ServerGone:
                self._revive()
            except CallFailed as error:
                if not error.retry_possible:
                    self.problems.append(str(error))
        self.problems.append(f"{tool} did not succeed in {MAX_ATTEMPTS} attempts")
        return False

    def _read_status(self, project: str) -> str:
        listed = self.client.call("list_projects", {"status": "all"})["projects"]
        return next(entry["status"] for entry in listed if entry["name"] == project)

    def _revive(self) -> None:
        try:
            self.client.restart()
        except ServerGone:
            return  # the next call notices


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
