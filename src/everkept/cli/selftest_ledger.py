"""What servers acknowledged, and whether a library still has it."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from everkept.app.app import App
from everkept.core.ports import RecordStore
from everkept.core.sessions import Session
from everkept.settings import load
from everkept.values import Value, field

SEARCHED = 100  # acknowledged observations that are looked for by a word
_PAGE = 1_000
_SIGNS = {"insert": 1, "restore": 1, "delete": -1, "update": 0}


class Fact(Value):
    """An entity, one of its observations (`text`), or a relation to another (`target`)."""

    project: str
    entity: str
    text: str | None = None
    target: str | None = None


class Ledger:
    """The state that the answers of the servers promise, fact by fact."""

    def __init__(self) -> None:
        self.promised: dict[Fact, bool] = {}  # False: deleted
        self.unanswered: list[frozenset[Fact]] = []  # each all there, or all not there
        self.surely_changed: Counter[str] = Counter()  # calls, by project
        self.possibly_changed: Counter[str] = Counter()

    def attempt(self, project: str) -> None:
        """A call is about to be sent."""
        self.possibly_changed[project] += 1

    def acknowledge(
        self,
        project: str,
        *,
        stored: Iterable[Fact] = (),
        removed: Iterable[Fact] = (),
        surely_changed: bool = True,
    ) -> None:
        """A call was answered. One that may have been a repetition did not surely change much."""
        self.promised.update(dict.fromkeys(stored, True))
        self.promised.update(dict.fromkeys(removed, False))
        self.surely_changed[project] += surely_changed

    def abandon(self, facts: Iterable[Fact]) -> None:
        """A call about these facts was never answered, and will not be repeated."""
        group = frozenset(facts)
        for fact in group:
            self.promised.pop(fact, None)
        self.unanswered.append(group)

    def include(self, other: "Ledger") -> None:
        """Takes in what another writer was told; the two may share what neither deletes."""
        self.promised.update(other.promised)
        self.unanswered += other.unanswered
        self.surely_changed += other.surely_changed
        self.possibly_changed += other.possibly_changed


class Verdict(Value, frozen=False):
    """The library held against the ledger."""

    acknowledged: int = 0
    found: int = 0
    lost: int = 0
    duplicates: int = 0
    torn: int = 0  # unanswered calls of which only a part was stored
    unasked: int = 0  # stored, though nobody asked for it or the call was refused
    searched: int = 0
    unsearchable: int = 0
    changes: int = 0
    problems: list[str] = field(default_factory=list[str])

    @property
    def is_good(self) -> bool:
        wrong = self.lost + self.duplicates + self.torn + self.unasked + self.unsearchable
        return not wrong and not self.problems


async def judge(data_dir: Path, ledger: Ledger) -> Verdict:
    """Opens the library anew and counts what is missing, there twice or there unasked."""
    app = App(load({"data_dir": data_dir}, {}))
    verdict = Verdict()
    try:
        stored: Counter[Fact] = Counter()
        for project in await app.library.projects():
            stored += await _facts(app, project.name)
            _, store = await app.library.open(project.name)
            changes, live = await _replayed(store)
            findings = await store.check()
            findings += _log_findings(project.name, ledger, changes, live, await store.count())
            verdict.problems += [f"{project.name}: {finding}" for finding in findings]
            verdict.changes += changes
        _compare(verdict, ledger, stored)
        await _search(app, verdict, ledger, stored)
    finally:
        await app.close()
    return verdict


def _compare(verdict: Verdict, ledger: Ledger, stored: Counter[Fact]) -> None:
    kept = sum((stored[fact] > 0) == is_there for fact, is_there in ledger.promised.items())
    verdict.acknowledged = len(ledger.promised)
    verdict.found = kept
    verdict.lost = verdict.acknowledged - kept
    verdict.duplicates = sum(count - 1 for count in stored.values() if count > 1)
    verdict.torn = sum(
        len({stored[fact] > 0 for fact in group - ledger.promised.keys()}) > 1
        for group in ledger.unanswered
    )
    open_ended = frozenset[Fact]().union(*ledger.unanswered)
    verdict.unasked = len(stored.keys() - ledger.promised.keys() - open_ended)


async def _facts(app: App, project: str) -> Counter[Fact]:
    """Everything in a project, as a client reads it."""
    found: Counter[Fact] = Counter()
    arguments: dict[str, Any] = {"project": project, "limit": _PAGE}
    while True:
        page = (await app.call(Session(), "read_graph", arguments)).structured
        for entity in page["entities"]:
            found[Fact(project, entity["name"])] += 1
            found.update(
                Fact(project, entity["name"], text=observation["content"])
                for observation in entity["observations"]
            )
        found.update(
            Fact(project, relation["from"], target=relation["to"]) for relation in page["relations"]
        )
        if page.get("next_cursor") is None:
            return found
        arguments["cursor"] = page["next_cursor"]


def _log_findings(
    project: str, ledger: Ledger, changes: int, logged: Counter[str], counted: Mapping[str, int]
) -> list[str]:
    """Where the change log disagrees with the calls, or with what is stored."""
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


async def _replayed(store: RecordStore) -> tuple[int, Counter[str]]:
    """The number of changes in the log, and how many records and links they leave."""
    seen, after = 0, 0
    live: Counter[str] = Counter()
    while changes := await store.changes(after=after, limit=_PAGE):
        for change in changes:
            for edit in change.edits:
                live[edit.subject] += _SIGNS[edit.operation]
        seen += len(changes)
        after = changes[-1].seq
    return seen, live


async def _search(app: App, verdict: Verdict, ledger: Ledger, stored: Counter[Fact]) -> None:
    """Looks for a sample of observations by their first word, which no other entity has."""
    kept = [fact for fact, is_there in ledger.promised.items() if is_there and stored[fact]]
    observations = [fact for fact in kept if fact.text]
    for fact in random.sample(observations, min(SEARCHED, len(observations))):
        arguments = {"query": (fact.text or "").split()[0], "project": fact.project, "limit": 100}
        result = await app.call(Session(), "search_nodes", arguments)
        verdict.searched += 1
        names = {entity["name"] for entity in result.structured["entities"]}
        verdict.unsearchable += fact.entity not in names
