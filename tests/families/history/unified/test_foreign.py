from dataclasses import dataclass, field

from everkept.core.peers import Asked, PeerAnswer, PeerFault, PeerQuestion
from everkept.core.searching import Finding
from everkept.core.sessions import Call, Session
from everkept.families.history.unified.answers import UnifiedAnswer
from everkept.families.history.unified.foreign import PARTS, results_of
from everkept.families.history.unified.showing import as_markdown
from making import DAY_ONE
from telling import embed, tell
from unifying import Everything


@dataclass
class Neighbours:
    """Others who have an answer ready."""

    asked: Asked
    questions: list[PeerQuestion] = field(default_factory=list[PeerQuestion])

    async def ask(self, question: PeerQuestion) -> Asked:
        self.questions.append(question)
        return self.asked


def finding(content: str, kind: str = "conversation", **more: str) -> Finding:
    way = "graph" if kind == "entity" else "semantic"
    return Finding(f"anna:{content}", kind, content, 0.9, way, at=DAY_ONE, project="shop", **more)


async def search(everything: Everything, query: str, peers: Neighbours) -> UnifiedAnswer:
    await embed(await everything.store(), everything.indexing.embedder)
    call = Call(Session(), "unified_memory_search")
    return await everything.unified().search(call, query, peers=peers)


async def test_others_are_asked_and_named(everything: Everything) -> None:
    await tell(await everything.store(), "s1", "The flaky login test is fixed")
    anna = PeerAnswer(
        "anna",
        (finding("The flaky login waits for Redis", title="Login"), finding("Login", "entity")),
    )
    peers = Neighbours(Asked([anna], [PeerFault("bert", "peer_timed_out", "Without bert.")]))
    answer = await search(everything, "flaky login", peers)
    assert [question.query for question in peers.questions] == ["flaky login"]
    sources = {each.content: each.source for each in answer.results}
    assert sources["The flaky login test is fixed"] == "local"
    assert sources["The flaky login waits for Redis"] == "peer:anna"
    assert [each.code for each in answer.warnings or ()] == ["peer_timed_out"]
    assert "the peer anna" in answer.explanation
    assert not any("anna:" in suggestion for suggestion in answer.suggestions)
    shown = as_markdown(answer, "flaky login", DAY_ONE)
    assert "from the peer anna" in shown
    assert "View full context](anna:" not in shown


async def test_what_is_here_too_is_shown_once_with_both(everything: Everything) -> None:
    await tell(await everything.store(), "s1", "The flaky login test is fixed")
    anna = PeerAnswer("anna", (finding("the flaky  login test is fixed"),))
    answer = await search(everything, "flaky login", Neighbours(Asked([anna])))
    [only] = answer.results
    assert (only.source, only.also_in) == ("local", ["peer:anna"])
    assert "also the peer anna" in as_markdown(answer, "flaky login", DAY_ONE)


async def test_where_nobody_can_be_asked_that_is_told(everything: Everything) -> None:
    await tell(await everything.store(), "s1", "The flaky login test is fixed")
    answer = await search(everything, "login", Neighbours(Asked(is_anybody=False)))
    assert [each.code for each in answer.warnings or ()] == ["no_peers"]
    assert len(answer.results) == 1


def test_every_type_has_its_part() -> None:
    found = [finding("x", kind) for kind in PARTS]
    results = results_of(PeerAnswer("anna", tuple(found)))
    assert [each.found_in for each in results] == list(PARTS.values())
    assert {each.context.project_path for each in results} == {"shop"}
