"""What a quick look into the past finds, and what it must not."""

from pathlib import Path
from typing import Any

from everkept.core.records import Record, RecordFilter
from everkept.core.runtime import run_without_loop
from everkept.core.transcripts import USER
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.read_only_library import SqliteReadOnlyLibrary
from everkept.families.history.model import TURN
from everkept.families.memories.model import MEMORY
from everkept.hooks import prompt_evidence
from everkept.hooks.events import HookEvent
from everkept.hooks.prompt_evidence import MAX_INDEX_ROWS, EvidenceQuery, EvidenceResult, search_evidence
from everkept.hooks.workspace import ProjectFolders
from everkept.language.telling_words import find_telling_words
from everkept.settings import Settings
from prompts import ELSEWHERE, HERE, NOW, SESSION, Past, shop
from records import batch
from worktrees import add_worktree

ANSWER = "The sharding of the ledger is done by the customer's region, in eight shards."


def found(past: Past, text: str, where: str = HERE, *, everywhere: bool = False) -> EvidenceResult:
    event = HookEvent("UserPromptSubmit", SESSION, Path(where))
    asked = EvidenceQuery(find_telling_words(text), error=find_telling_words(text), everywhere=everywhere)
    return run_without_loop(search_evidence(past.library, event, past.around().settings, asked))


def texts(looked: EvidenceResult) -> list[str]:
    return [find.record.text for find in looked.finds]


def test_its_own_names_of_kinds_and_authors_are_those_of_the_others() -> None:
    assert (prompt_evidence.MEMORY, prompt_evidence.USER) == (MEMORY, USER)


def test_a_question_stands_for_its_answer(past: Past) -> None:
    best = found(past, "stripe webhook twice charge").finds[0]
    assert best.record.text.startswith("Webhooks are idempotent now")
    assert best.title == "Payments webhook"
    assert best.share == 1


def test_an_old_question_that_says_no_more_than_the_new_one_is_not_found(tmp_path: Path) -> None:
    past = Past(tmp_path)
    past.say("Sharding", 3, [("How is the ledger sharding done per region?", "Well.")])
    assert found(past, "ledger sharding region").finds == ()
    past.say("Again", 2, [("Is ledger sharding slow with forty tenants in Asia?", "No.")])
    assert len(found(past, "ledger sharding region").finds) == 1


def test_the_words_of_a_title_count_for_the_turns_below_it(past: Past) -> None:
    best = found(past, "login counters").finds[0]
    assert "rather than in memory" in best.record.text
    assert best.share == 1


def test_a_turn_that_says_nothing_of_it_is_not_found_by_its_title_alone(tmp_path: Path) -> None:
    past = Past(tmp_path)
    past.say("Sharding of the ledger", 3, [("commit this", "Committed."), ("Push", "Pushed.")])
    assert found(past, "ledger sharding").finds == ()


def test_code_that_its_turn_shows_is_found_once(past: Past) -> None:
    finds = found(past, "LoginLimiter bucket address").finds
    assert [find.record.kind for find in finds if "self.bucket.take" in find.record.text] == [TURN]


def test_what_this_session_said_is_not_found_nor_what_its_agents_said(tmp_path: Path) -> None:
    past = Past(tmp_path)
    said = [("How is the ledger sharded?", ANSWER)]
    past.say("Now", 0, said, session=SESSION)
    assert found(past, "ledger sharding region").finds == ()
    past.keep(
        past.history,
        [
            Record(
                "turn of an agent",
                TURN,
                NOW,
                NOW,
                text=ANSWER,
                scope=HERE,
                session="an agent",
                author="assistant",
                facets={"part_of": SESSION},
            )
        ],
    )
    assert found(past, "ledger sharding region").finds == ()
    past.say("Before", 9, said)
    assert texts(found(past, "ledger sharding region")) == [ANSWER]


def test_turns_in_folders_below_the_project_belong_to_it(tmp_path: Path) -> None:
    past = Past(tmp_path)
    past.say("Web", 3, [("How is the ledger sharded?", ANSWER)], where=f"{HERE}/web")
    assert texts(found(past, "ledger sharding region")) == [ANSWER]
    assert found(past, "ledger sharding region", where=f"{HERE}-2").finds == ()


def test_other_projects_count_only_where_that_is_asked_and_this_one_has_nothing(past: Past) -> None:
    question = "akismet filter comments"
    assert found(past, question).finds == ()
    assert [find.record.scope for find in found(past, question, everywhere=True).finds] == [ELSEWHERE]
    past.say("Here too", 1, [("Do we use akismet?", f"The akismet filter is {'slow ' * 30}")])
    assert {find.record.scope for find in found(past, question, everywhere=True).finds} == {HERE}


def test_other_projects_do_not_count_where_a_memory_was_found(past: Past) -> None:
    past.remember("The akismet filter of comments is off in tests")
    shelves = [find.source for find in found(past, "akismet filter comments", everywhere=True).finds]
    assert shelves == ["project"]


def test_nothing_of_a_project_that_is_switched_off_is_found(past: Past) -> None:
    blog = run_without_loop(past.library.create("blog", ""))
    run_without_loop(past.library.link_workspace(str(Path(ELSEWHERE)), blog))
    assert found(past, "akismet filter comments", everywhere=True).finds
    run_without_loop(past.library.set_off("blog", off=True))
    assert found(past, "akismet filter comments", everywhere=True).finds == ()


def test_what_is_off_takes_no_place_among_the_best(past: Past) -> None:
    sharded = [(f"How is ledger {n} sharded?", f"By region: {ANSWER}") for n in range(60)]
    past.say("Sharding", 1, sharded, where="/home/dev/secret")
    past.say("Blog", 30, [("Is the ledger of the blog sharded?", ANSWER)], where=ELSEWHERE)
    secret = run_without_loop(past.library.create("secret", ""))
    run_without_loop(past.library.link_workspace(str(Path("/home/dev/secret")), secret))
    question = "ledger sharding region"
    looked = found(past, question, everywhere=True)
    assert {find.record.scope for find in looked.finds} == {"/home/dev/secret"}
    run_without_loop(past.library.set_off("secret", off=True))
    looked = found(past, question, everywhere=True)
    assert [find.record.scope for find in looked.finds] == [ELSEWHERE]


def test_a_folder_that_is_off_has_no_past(past: Past) -> None:
    past.remember("The ledger is sharded")  # makes the project
    question = "stripe webhook twice charge"
    assert any(find.source == "history" for find in found(past, question).finds)
    run_without_loop(past.library.set_off("shop-api", off=True))
    looked = found(past, question)
    assert all(find.source != "history" for find in looked.finds)


def test_memories_of_the_project_and_the_user_are_found(past: Past) -> None:
    assert texts(found(past, "launchdarkly feature flags environment")) == [
        "Feature flags live in LaunchDarkly; the key is read from the environment."
    ]
    best = found(past, "conventional commits pull requests").finds[0]
    assert (best.source, best.record.text) == ("user", "Prefers small pull requests and conventional commits.")
    assert found(past, "launchdarkly feature flags", where=ELSEWHERE).finds == ()


def test_memories_that_are_past_or_of_other_sessions_are_not_found(tmp_path: Path) -> None:
    past = Past(tmp_path)
    past.remember("The ledger has four shards by region", facets={"superseded_by": "other"})
    past.remember("The ledger has five shards by region", facets={"merged_into": "other"})
    past.remember("The ledger has six shards by region", scope="session", session="another")
    noted = {"automatic": True}
    past.remember("Ledger shards by region failed", scope="session", session=SESSION, facets=noted)
    assert found(past, "ledger shards region").finds == ()
    past.remember("The ledger has seven shards by region", scope="session", session=SESSION)
    past.remember("Ledger shards by region again", session="another", facets=noted)
    assert len(found(past, "ledger shards region").finds) == 2


def test_an_archived_project_gives_nothing_and_takes_nothing_down(past: Past) -> None:
    run_without_loop(past.library.archive("shop-api"))
    assert found(past, "launchdarkly feature flags").finds == ()
    assert found(past, "trigram similarity threshold").finds


def test_an_error_is_like_those_that_failed_before(past: Past) -> None:
    looked = found(past, "psycopg2 LockNotAvailable canceling statement lock timeout")
    assert looked.error_likeness > 0.6
    assert found(past, "akismet filter comments held back").error_likeness == 0


def test_the_overlap_counts_what_stands_together_in_the_past(past: Past) -> None:
    assert found(past, "stripe webhook signature header endpoint secret").overlap > 0.7
    assert found(past, "avatar picker carousel").overlap == 0
    # Each is known, but no two of them to the same passage.
    assert found(past, "gunicorn trigram launchdarkly").overlap == 0


def test_in_a_long_text_words_that_are_far_apart_do_not_count_together(tmp_path: Path) -> None:
    past = Past(tmp_path)
    far = f"The ledger is here. {'Nothing of note. ' * 120} Shards are there, by region."
    past.say("Long", 3, [("Tell me", far), ("More", "Nothing at all. " * 20)])
    assert found(past, "ledger shards region").finds[0].share < 1


async def test_over_sqlite_it_finds_what_it_finds_in_memory(tmp_path: Path) -> None:
    past = shop(tmp_path)
    library = SqliteLibrary(tmp_path / "data")
    history = await library.open_history_store()
    await history.commit(batch(*await past.history.scan(RecordFilter())))
    await library.close()
    room = SqliteReadOnlyLibrary(tmp_path / "data")
    event = HookEvent("UserPromptSubmit", SESSION, Path(HERE))
    for text in ("limit logins redis", "stripe webhook twice", "orders partition month"):
        asked = EvidenceQuery(find_telling_words(text))
        there = run_without_loop(search_evidence(room, event, past.around().settings, asked))
        here = found(past, text)
        assert there.finds[0].record.id == here.finds[0].record.id
    await room.close()


async def test_words_that_nearly_every_record_has_are_not_ranked(tmp_path: Path) -> None:
    library = SqliteLibrary(tmp_path)
    history = await library.open_history_store()
    common: dict[str, Any] = {"kind": TURN, "created_at": NOW, "updated_at": NOW, "scope": HERE}
    texts = [f"worker {'drained' if n % 50 else 'stuck'} queue" for n in range(MAX_INDEX_ROWS + 100)]
    await history.commit(batch(*(Record(f"t{n}", text=t, **common) for n, t in enumerate(texts))))
    await library.close()
    room = SqliteReadOnlyLibrary(tmp_path)
    event = HookEvent("UserPromptSubmit", SESSION, Path(HERE))

    def texts_for(text: str) -> set[str]:
        asked = EvidenceQuery(find_telling_words(text))
        looked = run_without_loop(search_evidence(room, event, Settings(tmp_path), asked))
        return {find.record.text for find in looked.finds}

    assert texts_for("worker queue") == set()
    assert texts_for("worker queue stuck") == {"worker stuck queue"}
    await room.close()


def test_the_folders_of_a_repository_are_those_at_and_below_its_root(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    (root / ".git").mkdir(parents=True)
    (root / "web").mkdir()
    known = [str(root), str(root / "web"), str(tmp_path / "shop-2"), str(tmp_path), ""]
    for inside in (root, root / "web"):
        assert ProjectFolders.from_folder(inside).select_scopes(known) == (str(root), str(root / "web"))


def test_a_worktree_has_the_conversations_of_its_main_checkout(tmp_path: Path) -> None:
    main, tree = tmp_path / "main", tmp_path / "tree"
    add_worktree(main, tree)
    assert set(ProjectFolders.from_folder(tree).select_scopes([str(main), str(tree)])) == {str(main), str(tree)}
    assert ProjectFolders.from_folder(main).select_scopes([str(main), str(tree)]) == (str(main),)


def test_case_and_separators_do_not_tell_folders_apart(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    other = str(tmp_path).upper().replace("/", "\\") + "\\"
    assert ProjectFolders.from_folder(tmp_path).select_scopes([other]) == (other,)


def test_the_home_folder_is_a_project_only_by_itself() -> None:
    home = Path.home().resolve()
    assert ProjectFolders.from_folder(home).select_scopes([str(home), str(home / "shop")]) == (str(home),)


def test_nowhere_is_no_folder() -> None:
    assert ProjectFolders.from_folder(None).select_scopes(["/home/dev", ""]) == ()
