"""Each trigger of the past, in ten natural sentences whose answer is stored."""

from pathlib import Path

import pytest

from prompts import Past, shop

LIMITS, EXPORT, RECONNECT, WEBHOOK = "token bucket", "utf-8-sig", "exponential backoff", "stripe_events"
COUNTERS, LOCKS, ORDERS, SEARCH, DEPLOY = "in memory", "lock_timeout", "pg_partman", "pg_trgm", "deploy-staging.yml"

PHRASINGS: dict[str, dict[str, str]] = {
    "how did we": {
        "How did we limit logins?": LIMITS,
        "how did we fix the encoding of the export for Excel": EXPORT,
        "Quick question: how did we make the websocket reconnect reliable?": RECONNECT,
        "I forgot how did we handle a webhook that Stripe sends twice": WEBHOOK,
        "How did we partition the orders table before?": ORDERS,
        "how did we get product search to tolerate typos?": SEARCH,
        "How did we deploy staging?": DEPLOY,
        "So how did we solve the lock timeout of the alembic upgrade?": LOCKS,
        "How did we keep the login counters across a restart?": COUNTERS,
        "Tell me, how did we verify the Stripe signature?": "tolerance",
    },
    "remember when": {
        "Remember when we limited logins?": LIMITS,
        "remember when the export had the wrong encoding in Excel": EXPORT,
        "Do you remember when the websocket reconnect test was flaky?": RECONNECT,
        "Remember when Stripe sent the same webhook twice?": WEBHOOK,
        "remember when we talked about orders table partitioning": ORDERS,
        "Remember when product search choked on typos? Same here.": SEARCH,
        "Remember when the alembic upgrade failed with a lock timeout": LOCKS,
        "Remember when I asked how staging is deployed?": DEPLOY,
        "remember when we wondered whether the counters survive a restart": COUNTERS,
        "Remember when we charged people twice because of the webhook?": WEBHOOK,
    },
    "last time": {
        "Last time we worked on the login limits, what was chosen?": LIMITS,
        "Last time the export had the wrong encoding in Excel.": EXPORT,
        "The websocket reconnect hangs like last time": RECONNECT,
        "What did we do last time Stripe sent a webhook twice?": WEBHOOK,
        "Last time you partitioned the orders table by month": ORDERS,
        "In product search we allowed typos last time": SEARCH,
        "alembic upgrade hit the lock timeout last time too": LOCKS,
        "last time staging was deployed by a workflow": DEPLOY,
        "Which store did the login counters get last time?": COUNTERS,
        "Do the CSV export for invoices as last time": "InvoiceExporter",
    },
    "previously": {
        "Previously we limited logins per address.": LIMITS,
        "Excel showed the export in the wrong encoding previously": EXPORT,
        "The websocket reconnect was flaky previously, what helped?": RECONNECT,
        "We previously handled a webhook that Stripe sends twice": WEBHOOK,
        "Previously, how was the orders table partitioned?": ORDERS,
        "You previously set up product search with typos": SEARCH,
        "previously the alembic upgrade failed with a lock timeout": LOCKS,
        "How was staging deployed previously?": DEPLOY,
        "Where did the login counters live previously?": COUNTERS,
        "We have previously discussed the Stripe signature": "tolerance",
    },
    "before we": {
        "Before we changed it, how were logins limited per address?": LIMITS,
        "Before we fixed the encoding of the export, what did Excel need?": EXPORT,
        "What was the websocket reconnect like before we made it reliable?": RECONNECT,
        "Before we go on: Stripe sends the webhook twice, what was the answer?": WEBHOOK,
        "As before we partition the orders table by month": ORDERS,
        "Before we add more typos to product search, what is the threshold?": "0.3",
        "Before we run alembic upgrade, what about the lock timeout?": LOCKS,
        "How was staging deployed before we changed the workflow?": DEPLOY,
        "Before we restart the workers: do the login counters survive?": COUNTERS,
        "Before we check the Stripe signature, which scheme is it?": "tolerance",
    },
    "earlier you": {
        "Earlier you suggested a token bucket for logins": LIMITS,
        "Earlier you fixed the encoding of the export for Excel.": EXPORT,
        "earlier you made the websocket reconnect reliable, how?": RECONNECT,
        "You know, earlier you made the Stripe webhook idempotent": WEBHOOK,
        "Earlier you partitioned the orders table": ORDERS,
        "Earlier you chose trigram similarity for product search": SEARCH,
        "Earlier you set a lock timeout for alembic": LOCKS,
        "earlier you told me how staging is deployed": DEPLOY,
        "Earlier you said where the login counters live, in Redis?": COUNTERS,
        "Earlier you verified the Stripe signature somehow": "tolerance",
    },
    "in our last": {
        "In our last session we limited logins.": LIMITS,
        "in our last conversation about the export for Excel, which encoding was it": EXPORT,
        "In our last session you fixed the websocket reconnect": RECONNECT,
        "What happened to the Stripe webhook in our last chat?": WEBHOOK,
        "In our last session we chose a partitioning for the orders table": ORDERS,
        "In our last discussion product search tolerated typos": SEARCH,
        "in our last session alembic had a lock timeout": LOCKS,
        "How was staging deployed in our last session?": DEPLOY,
        "In our last talk we kept the login counters in Redis": COUNTERS,
        "In our last meeting the Stripe signature came up": "tolerance",
    },
    "we discussed": {
        "What was that limit for logins we discussed?": LIMITS,
        "We discussed the encoding of the export for Excel": EXPORT,
        "we discussed the flaky websocket reconnect, right?": RECONNECT,
        "Use the idea for the Stripe webhook that we discussed": WEBHOOK,
        "Partition the orders table as we discussed": ORDERS,
        "The typos in product search we discussed are back": SEARCH,
        "We discussed a lock timeout for alembic upgrades": LOCKS,
        "we discussed how staging is deployed": DEPLOY,
        "Did we not keep the login counters in Redis, we discussed that": COUNTERS,
        "Do the Stripe signature check we discussed": "tolerance",
    },
    "again": {
        "The login form is hammered again, limit logins": LIMITS,
        "Excel shows the export in the wrong encoding again": EXPORT,
        "The websocket reconnect test fails again": RECONNECT,
        "Stripe sends the webhook twice again": WEBHOOK,
        "Which partitioning has the orders table again?": ORDERS,
        "Product search finds no typos again": SEARCH,
        "the alembic upgrade has a lock timeout again": LOCKS,
        "How is staging deployed again?": DEPLOY,
        "Do the login counters survive a restart again": COUNTERS,
        "what was the tolerance of the Stripe signature again": "tolerance",
    },
    "similar to": {
        "Limit signups similar to the logins per address": LIMITS,
        "Write the export for Excel similar to the invoices": "InvoiceExporter",
        "Make the reconnect similar to the websocket reconnect": RECONNECT,
        "This is similar to the Stripe webhook that came twice": WEBHOOK,
        "Partition the events similar to the orders table": ORDERS,
        "Build customer search similar to product search with typos": SEARCH,
        "A lock timeout similar to that of the alembic upgrade": LOCKS,
        "Deploy production similar to staging with a GitHub workflow": DEPLOY,
        "Keep counters in Redis similar to the login counters": COUNTERS,
        "Check the signature similar to the Stripe signature": "tolerance",
    },
    "like before": {
        "Limit logins like before": LIMITS,
        "Fix the encoding of the export for Excel like before": EXPORT,
        "The websocket reconnect is flaky, like before": RECONNECT,
        "Make the Stripe webhook idempotent like before": WEBHOOK,
        "like before, partition the orders table": ORDERS,
        "Product search must tolerate typos like before": SEARCH,
        "Set the lock timeout for alembic like before": LOCKS,
        "Deploy staging like before": DEPLOY,
        "Keep the login counters in Redis like before": COUNTERS,
        "Verify the Stripe signature like before": "tolerance",
    },
    "the same way": {
        "Limit logins the same way": LIMITS,
        "Fix the encoding of the export the same way": EXPORT,
        "Do the websocket reconnect the same way": RECONNECT,
        "Handle the Stripe webhook in the same way": WEBHOOK,
        "Partition the orders table the same way": ORDERS,
        "The same way, let product search tolerate typos": SEARCH,
        "Set the alembic lock timeout the same way": LOCKS,
        "Deploy staging the same way": DEPLOY,
        "Store the login counters the same way": COUNTERS,
        "Verify the Stripe signature the same way": "tolerance",
    },
    "remember": {
        "Do you remember the limit of logins per address?": LIMITS,
        "I don't remember the encoding of the export for Excel": EXPORT,
        "Remember the websocket reconnect?": RECONNECT,
        "do you still remember the Stripe webhook": WEBHOOK,
        "Can you remember how the orders table is partitioned?": ORDERS,
        "I remember product search and its typos": SEARCH,
        "Who remembers the lock timeout of alembic? I remember it failed": LOCKS,
        "Remember how staging is deployed?": DEPLOY,
        "I can't remember where the login counters are": COUNTERS,
        "You remember the Stripe signature, don't you?": "tolerance",
    },
    "recall": {
        "Recall the limit of logins per address": LIMITS,
        "Can you recall the encoding of the export for Excel?": EXPORT,
        "recall how we made the websocket reconnect reliable": RECONNECT,
        "I don't recall the table of the Stripe webhook": WEBHOOK,
        "Please recall how the orders table is partitioned": ORDERS,
        "Do you recall product search with typos?": SEARCH,
        "I recall a lock timeout of alembic": LOCKS,
        "Recall how staging is deployed": DEPLOY,
        "As I recall, the login counters are in Redis": COUNTERS,
        "recall our talk about the Stripe signature": "tolerance",
    },
    "earlier": {
        "We limited logins per address earlier": LIMITS,
        "Our earlier export for Excel had the wrong encoding": EXPORT,
        "The websocket reconnect was flaky earlier": RECONNECT,
        "Stripe sent the webhook twice earlier, what was done?": WEBHOOK,
        "Earlier, the orders table was partitioned": ORDERS,
        "Earlier work on product search tolerated typos": SEARCH,
        "alembic had a lock timeout earlier": LOCKS,
        "How was staging deployed earlier?": DEPLOY,
        "Where were the login counters kept earlier?": COUNTERS,
        "The Stripe signature came up earlier": "tolerance",
    },
}


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Past:
    return shop(Path(tmp_path_factory.mktemp("past")))


@pytest.mark.parametrize("trigger", PHRASINGS)
def test_each_trigger_is_understood_in_ten_natural_sentences(past: Past, trigger: str) -> None:
    asked = PHRASINGS[trigger]
    given = {prompt: past.ask(prompt, session=prompt) for prompt in asked}
    assert len(asked) == 10
    assert {prompt: told for prompt, told in asked.items() if told not in given[prompt]} == {}
