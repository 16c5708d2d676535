"""Acknowledgements of a selftest, and their comparison with the stored data."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from everkept.app.app import App
from everkept.core.ports import RecordStore
from everkept.core.sessions import Session
from everkept.core.text import format_count
from everkept.settings import Settings
from everkept.values import Value, field

SEARCH_SAMPLE = 100  # acknowledged observations to search by a word
LOOK_SECONDS = 0.5  # between looks whether pending writes were sent
MAX_NAMED_FACTS = 10
MAX_LOOKS = 600
_PAGE_ROWS = 1_000
_SIGNS = {"insert": 1, "restore": 1, "delete": -1, "update": 0}


class SelftestFact(Value):
    """Entity, one of its observations (`text`), or a relation to another one (`target`)."""

    project: str
    entity: str
    text: str | None = None
    target: str | None = None

    @property
    def label(self) -> str:
        entity = f'"{self.entity}" in project "{self.project}"'
        if self.text is not None:
            return f'Observation "{self.text}" of {entity}'
        return f"Entity {entity}" if self.target is None else f'Relation to "{self.target}" from {entity}'


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
    unanswered: int = 0  # calls
    partial: int = 0  # unanswered calls that were stored in part
    unexplained: int = 0  # stored without a call, or although the call was refused
    searched: int = 0
    unsearchable: int = 0
    changes: int = 0
    problems: list[str] = field(default_factory=list[str])

    @property
    def is_good(self) -> bool:
        wrong = self.lost + self.duplicates + self.partial + self.unexplained + self.unsearchable
        return not wrong and not self.problems


async def judge(settings: Settings, ledger: SelftestLedger) -> SelftestVerdict:
    """Open the library again and count missing, duplicate and unrequested facts."""
    app = App(settings)
    verdict = SelftestVerdict()
    try:
        await _send_pending_writes(app, verdict)
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


async def _send_pending_writes(app: App, verdict: SelftestVerdict) -> None:
    """Wait until a database that was unreachable has received all pending writes."""
    await app.library.list_projects()
    looks = 0
    while app.library.condition.waiting or app.library.condition.status != "connected":
        if (looks := looks + 1) > MAX_LOOKS:
            verdict.problems.append(f"{format_count(app.library.condition.waiting, 'pending write')} not sent")
            break
        await asyncio.sleep(LOOK_SECONDS)
        await app.library.list_projects()
    if rejected := app.library.condition.set_aside:
        verdict.problems.append(f"the database rejected {format_count(rejected, 'pending write')}")


def _compare(verdict: SelftestVerdict, ledger: SelftestLedger, stored: Counter[SelftestFact]) -> None:
    lost = [fact for fact, is_there in ledger.promised.items() if (stored[fact] > 0) != is_there]
    verdict.acknowledged = len(ledger.promised)
    verdict.unanswered = len(ledger.unanswered)
    verdict.found = verdict.acknowledged - len(lost)
    verdict.lost = len(lost)
    verdict.problems += [
        f"{fact.label} {'is missing' if ledger.promised[fact] else 'was deleted and still exists'}."
        for fact in lost[:MAX_NAMED_FACTS]
    ]
    doubled = {fact: count for fact, count in stored.items() if count > 1}
    verdict.duplicates = sum(count - 1 for count in doubled.values())
    verdict.problems += [f"{fact.label} is stored {doubled[fact]} times." for fact in list(doubled)[:MAX_NAMED_FACTS]]
    verdict.partial = sum(
        # Subtracting the keys would read all of them for each call.
        len({stored[fact] > 0 for fact in group if fact not in ledger.promised}) > 1
        for group in ledger.unanswered
    )
    open_ended = frozenset[SelftestFact]().union(*ledger.unanswered)
    verdict.unexplained = len(stored.keys() - ledger.promised.keys() - open_ended)


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
