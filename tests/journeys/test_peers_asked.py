"""The tools that ask other people's servers, with others who have an answer ready."""

import jsonschema
import pytest

from conversations import Historian, Moment, tell
from everkept.core.answers import SearchFinding
from everkept.core.peers import PeerAnswer, PeerAnswers, PeerQuestion
from everkept.engines.memory.library import MemoryLibrary
from records import DAY_ONE


@pytest.fixture
async def library() -> MemoryLibrary:
    made = MemoryLibrary()
    await tell(
        await made.open_history_store(),
        "s1",
        "The login form raises a KeyError about the session token",
        "The session token was read before it was set.",
    )
    return made


class Neighbours:
    """Others who have an answer ready, and what they were asked."""

    def __init__(self, *findings: SearchFinding) -> None:
        self.questions: list[PeerQuestion] = []
        self._asked = PeerAnswers([PeerAnswer("anna", findings)])

    async def ask(self, question: PeerQuestion) -> PeerAnswers:
        self.questions.append(question)
        return self._asked


LOGIN = SearchFinding(
    "anna:turn_1", "conversation", "Login form: the KeyError is a race", 0.9, "semantic", project="shop", at=DAY_ONE
)


async def test_others_are_asked_only_where_a_call_says_so(library: MemoryLibrary) -> None:
    peers = Neighbours(LOGIN)
    historian = Historian(library, Moment(), peers=peers)
    for tool in ("recall_previous_discussions", "unified_memory_search"):
        answer = await historian(tool, query="KeyError of the login form")
        assert {each["source"] for each in answer["results"]} == {"local"}
    assert peers.questions == []


@pytest.mark.parametrize("form", ["json", "markdown"])
async def test_what_others_have_is_in_the_answer_and_named(library: MemoryLibrary, form: str) -> None:
    peers = Neighbours(LOGIN)
    historian = Historian(library, Moment(), peers=peers)
    asked = {"query": "KeyError of the login form", "include_peers": True, "format": form}
    result = await historian.result("recall_previous_discussions", **asked)
    output = historian.tools.get("recall_previous_discussions").output_schema
    jsonschema.validate(result.facts, output or False)
    sources = result.facts["stats"]["sources"]
    assert sources["peer:anna"] == 1
    assert sources["local"] >= 1
    assert form == "json" or "1 from the peer anna" in result.text
    again = await historian("recall_previous_discussions", **asked)
    assert again == result.facts
    assert [(one.query, one.limit) for one in peers.questions] == [(asked["query"], 10)] * 2


async def test_everything_that_others_have_is_found_anew_each_time(library: MemoryLibrary) -> None:
    peers = Neighbours(LOGIN)
    historian = Historian(library, Moment(), peers=peers)
    asked = {"query": "KeyError of the login form"}
    for _ in range(2):
        answer = await historian("unified_memory_search", **asked, options={"include_peers": True})
        assert "peer:anna" in {each["source"] for each in answer["results"]}
    alone = await historian("unified_memory_search", **asked)
    assert {each["source"] for each in alone["results"]} == {"local"}
    assert len(peers.questions) == 2
