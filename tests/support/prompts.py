"""A small past of work, and prompts that are put to it as an assistant's hook does."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everkept.core.ports import RecordStore
from everkept.core.projects import find_workspace
from everkept.core.records import Record
from everkept.core.runtime import run_without_loop
from everkept.engines.memory.library import MemoryLibrary
from everkept.families.history.model import CODE, CONVERSATION, DECISION, SAID, TURN
from everkept.hooks.events import HookAnswer, HookContext, HookEvent
from everkept.hooks.user_prompt import handle_user_prompt
from everkept.hooks.workspace import SessionLedger
from everkept.language.sentences import has_problem
from everkept.settings import Settings
from records import DAY_ONE, batch, memory

DAY = 86_400_000_000
NOW = DAY_ONE + 100 * DAY
HERE = "/home/dev/shop-api"
ELSEWHERE = "/home/dev/blog"
SESSION = "now"

Said = tuple[str, str]  # what the user asked, and what the assistant answered

# Conversations of one project: a title, how many days ago, and what was said.
PAST: tuple[tuple[str, int, tuple[Said, ...]], ...] = (
    (
        "Limit logins",
        30,
        (
            (
                "People hammer the login form, please limit logins per address",
                "We limit logins with a token bucket in Redis: LoginLimiter.check() in "
                "shop/auth/limits.py counts attempts per address and account, ten an hour, and "
                "answers 429 with Retry-After.\n```python\nclass LoginLimiter:\n    def check("
                "self, address, account):\n        return self.bucket.take(address, account)\n```",
            ),
            (
                "Should the counters survive a restart?",
                "We decided to keep the counters in Redis rather than in memory, so that a "
                "restart of the workers does not open the gates.",
            ),
        ),
    ),
    (
        "CSV export of invoices",
        21,
        (
            (
                "Add a CSV export to the invoices page",
                "The invoices page has a CSV export now: InvoiceExporter streams rows with a "
                "server-side cursor, so that a year of invoices needs no memory.",
            ),
            (
                "The export is in the wrong encoding in Excel",
                "Fixed: Excel needs a byte order mark, so InvoiceExporter writes utf-8-sig.",
            ),
        ),
    ),
    (
        "Flaky websocket reconnect",
        14,
        (
            (
                "The websocket reconnect test fails with asyncio.TimeoutError: handshake took longer than 5 seconds",
                "The cause was a proxy that buffered the upgrade response. The handshake passes "
                "now that ReconnectPolicy waits with exponential backoff and jitter.",
            ),
        ),
    ),
    (
        "Payments webhook",
        10,
        (
            (
                "Stripe sends the same webhook twice and we charge twice",
                "Webhooks are idempotent now: the event id is stored in the table stripe_events "
                "under a unique constraint, and a repeated delivery is answered with 200.",
            ),
            (
                "Which signature scheme do we check?",
                "We verify the Stripe-Signature header with the endpoint secret and a tolerance of five minutes.",
            ),
        ),
    ),
    (
        "Database migrations",
        8,
        (
            (
                "The alembic upgrade failed: psycopg2.errors.LockNotAvailable: canceling statement due to lock timeout",
                "The migration waited for a long transaction. The fix was to set lock_timeout to "
                "two seconds and to retry, and to build the index concurrently.",
            ),
            (
                "What about the orders table partitioning?",
                "We agreed to partition the orders table by month with pg_partman, keeping twelve months online.",
            ),
        ),
    ),
    (
        "Search for products",
        5,
        (
            (
                "Product search should tolerate typos",
                "Product search uses trigram similarity with pg_trgm and a GIN index; the "
                "threshold is 0.3, below that the results are noise.",
            ),
        ),
    ),
    (
        "Deploy to staging",
        3,
        (
            (
                "How is staging deployed?",
                "Staging is deployed by the GitHub workflow deploy-staging.yml on each push to "
                "main; it runs alembic upgrade head and then restarts the gunicorn workers.",
            ),
        ),
    ),
    (
        "Small things",
        2,
        (
            ("fix the failing test", "The test passes now, the fixture had a wrong date."),
            ("rename the helper", "Renamed, and all callers are updated."),
            ("update the readme", "The readme names the new command."),
            ("run the tests again", "All 214 tests pass."),
            ("commit this", "Committed."),
        ),
    ),
)
MEMORIES = (
    "The checkout service talks to Stripe through shop/payments/gateway.py only.",
    "Feature flags live in LaunchDarkly; the key is read from the environment.",
)
OF_USER = ("Prefers small pull requests and conventional commits.",)


@dataclass
class Past:
    """A library with what was said and kept, and the session that asks."""

    folder: Path
    library: MemoryLibrary = field(default_factory=MemoryLibrary)
    budget: int = 1_500
    now: int = NOW

    @property
    def history(self) -> RecordStore:
        return run_without_loop(self.library.open_history_store())

    def ledger(self, session: str = SESSION) -> SessionLedger:
        return SessionLedger(self.folder / "hooks", session)

    def ask(self, prompt: str, session: str = SESSION, where: str = HERE) -> str:
        """The context that the prompt is answered with; empty where there is none."""
        event = HookEvent("UserPromptSubmit", session, Path(where), prompt=prompt)
        answer: HookAnswer | None = handle_user_prompt(event, self.around(session))
        return answer.context if answer else ""

    def around(self, session: str = SESSION) -> HookContext:
        settings = Settings(self.folder, prompt_token_budget=self.budget)
        return HookContext(settings, self.library, self.ledger(session), self.now, run_without_loop)

    def keep(self, store: RecordStore, records: Iterable[Record]) -> None:
        run_without_loop(store.commit(batch(*records)))

    def say(self, title: str, days: int, said: Iterable[Said], where: str = HERE, session: str = "") -> None:
        """A conversation, with the code in its turns."""
        self.keep(self.history, _conversation(title, self.now - days * DAY, said, where, session))

    def remember(self, text: str, **more: Any) -> None:
        run_without_loop(self._project().commit(batch(memory(text, **more))))

    def remember_of_user(self, text: str, **more: Any) -> None:
        store = run_without_loop(self.library.open_user_store())
        run_without_loop(store.commit(batch(memory(text, scope="user", **more))))

    def _project(self) -> RecordStore:
        home = find_workspace(Path(HERE))
        assert home is not None
        project = run_without_loop(self.library.find_workspace_project(home.key))
        if project is None:
            project = run_without_loop(self.library.create("shop-api", ""))
            run_without_loop(self.library.link_workspace(home.key, project))
        return run_without_loop(self.library.open(project.name))[1]


def shop(folder: Path) -> Past:
    """The past of a shop's server, and a little of another project."""
    past = Past(folder)
    for title, days, said in PAST:
        past.say(title, days, said)
    past.say(
        "Comments of the blog",
        40,
        (
            (
                "How do we keep spam out of the comments?",
                "Comments go through the Akismet filter, and links of authors whom nobody knows "
                "are held back until somebody has read them.",
            ),
        ),
        where=ELSEWHERE,
    )
    for text in MEMORIES:
        past.remember(text)
    for text in OF_USER:
        past.remember_of_user(text)
    return past


def _conversation(title: str, at: int, said: Iterable[Said], where: str, session: str) -> list[Record]:
    session = session or f"session of {title}"
    common: dict[str, Any] = {"created_at": at, "updated_at": at, "scope": where}
    owner = f"conv {title}"
    said = list(said)
    turns = {"turns": 2 * len(said)}
    records = [Record(owner, CONVERSATION, name=title, session=session, facets=turns, **common)]
    for number, (question, answer) in enumerate(said):
        for place, author, text in ((0, "user", question), (1, "assistant", answer)):
            turn = f"turn {title} {2 * number + place}"
            facets = {"problem": True} if has_problem(text) else {}
            records.append(
                Record(
                    turn,
                    TURN,
                    text=text,
                    type=DECISION if "decided" in text else SAID,
                    parent=owner,
                    session=session,
                    position=2 * number + place,
                    author=author,
                    facets=facets,
                    **common,
                )
            )
            if "```python\n" in text:
                code = text.partition("```python\n")[2].partition("\n```")[0]
                records.append(
                    Record(
                        f"code {title} {2 * number + place}",
                        CODE,
                        text=code,
                        name="shop/auth/limits.py",
                        type="python",
                        parent=turn,
                        session=session,
                        author=author,
                        **common,
                    )
                )
    return records
