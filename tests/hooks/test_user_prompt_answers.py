"""What prompts are answered with, over a small past of work."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from everkept.hooks.events import HookEvent
from everkept.hooks.user_prompt import handle_user_prompt
from everkept.hooks.workspace import SessionLedger
from everkept.values import replace
from prompts import ELSEWHERE, HERE, SESSION, Past, shop

GIVEN = {
    # The four forms, in the words of different people.
    "How did we limit logins last time?": "token bucket",
    "how did we limit logins before": "token bucket",
    "How'd we do the CSV export before?": "InvoiceExporter",
    "Remember when we fixed the websocket reconnect?": "exponential backoff",
    "do you remember how we made the stripe webhook idempotent": "stripe_events",
    "I can't remember which index product search uses": "pg_trgm",
    "Last time we worked on the invoices export, what was left?": "InvoiceExporter",
    "where did we leave off with the orders table partitioning?": "pg_partman",
    "When did we last touch the product search?": "trigram",
    "What was that partitioning scheme we discussed for the orders table?": "pg_partman",
    "what did we decide about the login counters": "rather than in memory",
    "Why did we keep the counters in Redis?": "rather than in memory",
    "Have we ever verified the Stripe signature header?": "tolerance",
    "Which threshold did we pick for trigram similarity?": "0.3",
    "what's the lock timeout we agreed on for alembic migrations": "two seconds",
    "what was the limit we set for login attempts?": "token bucket",
    "I told you before: the counters live in Redis": "rather than in memory",
    # In other languages, as far as words carry over.
    "Wie haben wir letztes Mal die Logins begrenzt?": "token bucket",
    "Was hatten wir zu den Countern in Redis beschlossen?": "rather than in memory",
    "Erinnerst du dich an den Webhook von Stripe?": "stripe_events",
    "¿Cómo limitamos los logins la última vez?": "token bucket",
    "¿Recuerdas cuando arreglamos el webhook de Stripe?": "stripe_events",
    "Comment avait-on limité les logins la dernière fois ?": "token bucket",
    "Die Webhooks von Stripe kommen wieder doppelt an": "stripe_events",
    "Los webhooks de Stripe llegan de nuevo dos veces": "stripe_events",
    "Les webhooks de Stripe arrivent à nouveau deux fois": "stripe_events",
    # Hints at the past.
    "Make an export for orders similar to the CSV export of invoices": "InvoiceExporter",
    "The webhook from Stripe is delivered twice again": "stripe_events",
    "Do the product search with typos the same way": "trigram",
    "Previously staging was deployed by a GitHub workflow, which one?": "deploy-staging.yml",
    # Nothing asks for the past, and yet it is the very same thing.
    "asyncio.TimeoutError: handshake took longer than 5 seconds": "exponential backoff",
    'Traceback (most recent call last):\n  File "/srv/shop/ws.py", line 7, in connect\n    await '
    "self.socket.open(uri, timeout=limit)\nasyncio.TimeoutError: handshake took longer than 5 "
    "seconds": "exponential backoff",
    "psycopg2.errors.LockNotAvailable: canceling statement due to lock timeout, alembic upgrade": ("concurrently"),
}
HINTED = {
    "How did we throttle the login attempts of each tenant back then?": ("recall_previous_discussions"),
    "What did we decide about LaunchDarkly flags of tenants on mobile clients?": "recall_memories",
    "The reconnect test is failing: asyncio.TimeoutError: handshake took longer than expected": (
        "find_similar_problems"
    ),
    "Product search finds nothing with typos in long names": "recall_previous_discussions",
    "Add a JSON export to the invoices page, and stream it as the CSV": ("recall_previous_discussions"),
    "Build a new endpoint for the Stripe webhook of refunds that checks the signature": ("recall_previous_discussions"),
    "How should we verify the signature of the webhook in shop/payments/gateway.py, when the "
    "header is missing and the secret was rotated, without breaking Stripe's retries?": ("recall_previous_discussions"),
}
SILENT = (
    "yes",
    "no",
    "ok",
    "go on",
    "continue",
    "thanks!",
    "Thank you, that works",
    "looks good, commit it",
    "commit this",
    "/clear",
    "/compact keep the plan",
    "!git status",
    "<command-name>/model</command-name>",
    "",
    "   \n",
    "?",
    "👍",
    "1",
    "run the tests",
    "run the tests again",
    "try again",
    "fix the failing test",
    "Please fix this error",
    "update the readme",
    "rename the helper function",
    "why does this fail?",
    "explain this function to me",
    "write a test for it",
    "make the button blue",
    "remember to run the linter before each commit",
    "Remember that we always use tabs in the makefiles",
    "remember: staging has no cron jobs",
    "What is the capital of France?",
    "Write a haiku about autumn leaves falling",
    "Translate the following paragraph into Spanish please",
    "Set the font size of the headings to 18 pixels",
    "Convert this bash script to python",
    "Explain the difference between TCP and UDP",
    "How do I sort a list of dictionaries in Python?",
    "Add a dark theme toggle to the settings screen",
    "Create a new React component for the avatar picker",
    "The unit tests for the calendar widget hang on macOS",
    "TypeError: cannot read properties of undefined (reading 'map') in Avatar.tsx",
    "Bump the copyright year in the footer",
    "Refactor the calendar module into smaller classes and keep the public names",
    "Use dependency injection for the mailer",
    "Is there a race condition in the avatar upload?",
    "Add type hints to the calendar helpers",
    "Play the same song again and again",
    "Precision and recall of the spam classifier are low",
    "git rebase main and push with lease",
    "Show me the git log of the last week",
    "as I mentioned earlier, keep the borders thin",
    "Generate ten random user names for the fixtures",
    "Delete the temporary branch on the remote",
    "What does the asterisk mean in this signature?",
    "Please review this pull request carefully and list the problems",
    "Format the file with black and sort the imports",
    "Which python version are we on?",
    # They ask for the past, which knows nothing of it.
    "How did we throttle sign-ins back then?",
    "What did we decide about the colour palette?",
    "What did we decide about the bucket of flowers?",
    "how did we get here? lol",
    "How did we run the tests last time?",
    "Wie haben wir die Farben gewählt?",
    "¿Cómo elegimos los colores la última vez?",
    "AssertionError: assert 200 == 429",
    "Access denied for user root@localhost when I run mysql",
    "error: command failed with exit code 1",
    # In other languages.
    "ja",
    "weiter",
    "Starte die Tests wieder",
    "Bitte behebe den Fehler",
    "Schreib einen Test dafür",
    "Otra vez, por favor",
    "Corrige el error de nuevo",
    "Encore une fois, s'il te plaît",
    "Explique cette fonction",
)
HEAVY = {
    "asyncio",
    "click",
    "concurrent.futures",
    "logging",
    "mcp",
    "msgspec",
    "numpy",
    "everkept.core.ports",
    "rich",
    "ssl",
    "subprocess",
    "yaml",
}


@pytest.mark.parametrize(("prompt", "told"), GIVEN.items(), ids=lambda text: text[:40])
def test_the_past_is_given_where_it_is_asked_for_or_just_the_same(past: Past, prompt: str, told: str) -> None:
    context = past.ask(prompt)
    assert told in context
    assert "</memories-" in context


@pytest.mark.parametrize(("prompt", "tool"), HINTED.items(), ids=lambda text: text[:40])
def test_a_search_is_suggested_where_it_looks_useful(past: Past, prompt: str, tool: str) -> None:
    context = past.ask(prompt)
    assert f"call {tool} with" in context
    assert "<memories-" not in context


@pytest.mark.parametrize("prompt", SILENT, ids=lambda text: text[:40])
def test_other_prompts_are_none_of_our_business(past: Past, prompt: str) -> None:
    assert past.ask(prompt) == ""


def test_nothing_is_given_twice_in_a_session_and_again_in_the_next(past: Past) -> None:
    first = past.ask("How did we limit logins last time?")
    assert "token bucket" in first
    assert past.ask("How did we limit logins last time?") == ""
    assert past.ask("Do you remember how we limited the logins?") == ""
    assert past.ask("How did we limit logins last time?", session="another") == first


def test_after_a_reset_of_the_ledger_it_may_be_given_again(past: Past) -> None:
    first = past.ask("How did we limit logins last time?")
    past.ledger().reset()
    assert past.ask("How did we limit logins last time?") == first


def test_a_hint_is_given_once_for_a_topic(past: Past) -> None:
    assert past.ask("Product search finds nothing with typos in long names")
    assert past.ask("Product search finds nothing with typos in short names") == ""
    assert past.ask("What did we decide about Stripe refunds by webhook for tenants abroad?")
    assert past.ask("And why did we choose that webhook of Stripe for tenants abroad?") == ""
    assert past.ask("What did we decide about the CSV export of tenants in the calendar?")


def test_what_was_given_is_not_hinted_at(past: Past) -> None:
    assert "trigram" in past.ask("Why did we tolerate typos in the product search?")
    assert past.ask("Product search finds nothing with typos in long names") == ""


def test_a_search_that_would_only_show_what_was_given_is_not_suggested(past: Past) -> None:
    asking = "What did we decide about the token bucket of tenants in the calendar?"
    assert "recall_previous_discussions" in past.ask(asking, session="another")
    assert "token bucket" in past.ask("How did we limit logins last time?")
    assert past.ask(asking) == ""


def test_an_error_that_came_up_before_is_told_of(past: Past) -> None:
    past.say(
        "MySQL",
        20,
        (
            (
                "ERROR 1045 (28000): Access denied for user 'root'@'localhost' in mysql",
                "MySQL knows root by its socket only: run it with sudo, or make a user of its own "
                "with caching_sha2_password.",
            ),
            (
                "The limiter is red: `E   AssertionError: assert 200 == 429`, what now?",
                "The limiter counted in each worker; the fixture empties the bucket in Redis now, "
                "between any two tests.",
            ),
        ),
    )
    assert "caching_sha2" in past.ask("Access denied for user root@localhost when I run mysql")
    assert "each worker" in past.ask("AssertionError: assert 200 == 429")
    assert past.ask("AssertionError: assert 'a' == 'b'") == ""


def test_an_old_question_for_the_past_is_no_answer_to_a_new_one(past: Past) -> None:
    lost = "I am sorry, in all of the files of this repository there is nothing of that kind."
    past.say(
        "Asked before",
        1,
        (
            ("how did we limit logins last time in shop-api?", "I do not know."),
            ("Remember how we limited logins in shop-api?", lost),
        ),
    )
    shown = past.ask("How did we limit logins last time?")
    assert "token bucket" in shown
    assert "shop-api?" not in shown
    assert "sorry" not in shown
    past.say("Shards", 1, (("How did we shard the ledger before?", "We shard it by region."),))
    assert "by region" in past.ask("How did we shard the ledger?")


def test_a_memory_and_what_consolidation_made_of_it_are_given_once(past: Past) -> None:
    text = "`pytest tests/ledger` failed and then succeeded, after edits of shop/ledger.py."
    more = f"{text} It had failed with:\nLedgerError: shard lost"
    past.remember(more, id="noticed", facets={"automatic": True})
    past.remember(text, id="made", facets={"automatic": True, "derived": "summary"})
    shown = past.ask("How did we fix pytest tests/ledger before?")
    assert shown.count("then succeeded") == 1
    assert "shard lost" in shown


def test_a_text_that_was_given_is_not_given_again_by_another_name(past: Past) -> None:
    text = "The ledger is sharded by region, in eight shards that are moved by hand each quarter."
    past.remember(text)
    past.say("Ledger", 3, [("How is the ledger sharded?", text)])
    assert past.ask("How did we shard the ledger by region?").count("eight shards") == 1
    assert "eight shards" not in past.ask("Remember when we moved the ledger shards by hand?")


def test_the_answer_stays_within_its_budget_or_away(tmp_path: Path) -> None:
    past = shop(tmp_path)
    past.budget = 30
    assert past.ask("How did we limit logins last time?") == ""
    past.budget = 0
    assert past.ask("How did we throttle the login attempts of each tenant back then?") == ""
    assert past.ask("where did we leave off?") == ""
    assert past.ledger().read_given() == set()


def test_a_very_long_prompt_is_answered_as_its_ends_say(past: Past) -> None:
    log = "\n".join(f"2024-01-01 worker {n} of the nightly reindex is done" for n in range(3_000))
    asked = "How did we limit logins last time?"
    assert "token bucket" in past.ask(f"{asked}\n{log}", session="before")
    assert "token bucket" in past.ask(f"{log}\n{asked}", session="after")
    assert past.ask(log) == ""


def test_without_a_library_or_a_past_nothing_is_said(tmp_path: Path) -> None:
    event = HookEvent("UserPromptSubmit", SESSION, Path(HERE), prompt=next(iter(GIVEN)))
    around = shop(tmp_path).around()
    assert handle_user_prompt(event, replace(around, room=None)) is None
    empty = Past(tmp_path / "empty")
    assert empty.ask("How did we limit logins last time?") == ""


def test_another_project_is_told_of_only_where_the_past_is_asked_for(past: Past) -> None:
    asking = "How did we keep spam out of the comments?"
    assert "Akismet" in past.ask(asking, where=ELSEWHERE)
    assert "From another project" not in past.ask(asking, where=ELSEWHERE, session="here")
    shown = past.ask(asking, session="another")
    assert 'From another project, "blog": Said by the assistant' in shown
    assert "in /home/dev/blog" in shown
    assert past.ask("How did we keep authors?") == ""  # one word is not enough
    assert past.ask("Comments with spam links of authors are held back again") == ""


def test_a_hook_that_was_quicker_has_given_it(past: Past) -> None:
    class Slow(SessionLedger):
        """Somebody else claims between the look at what was given and the claim."""

        def claim(self, ids: Iterable[str]) -> set[str]:
            ids = set(ids)
            SessionLedger(past.folder / "hooks", SESSION).claim(i for i in ids if i.endswith(" 1"))
            return super().claim(ids)

    event = HookEvent("UserPromptSubmit", SESSION, Path(HERE), prompt="Last time we worked on the CSV export")
    around = replace(past.around(), ledger=Slow(past.folder / "hooks", SESSION))
    answer = handle_user_prompt(event, around)
    assert answer is not None
    assert "byte order mark" in answer.context
    assert "server-side cursor" not in answer.context


def test_prompts_are_answered_without_what_takes_long_to_load() -> None:
    program = """
import sys
from pathlib import Path
from everkept.hooks import prompt_evidence, prompts, user_prompt
print(*sorted(set(sys.modules) & {HEAVY}))
""".replace("HEAVY", ", ".join(map(repr, sorted(HEAVY))))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""
