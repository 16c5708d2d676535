"""Past work on three projects, as an assistant's conversations: with code, decisions and solved problems."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

SHOP, BLOG, GAME = "/home/ada/shop-api", "/home/ada/blog", "/home/ada/game"


@dataclass(frozen=True)
class PastConversation:
    """Turns of the user and the assistant, who take turns; the user begins."""

    session: str
    project: str
    days_ago: int
    turns: Sequence[str]


CONVERSATIONS = (
    PastConversation(
        "logins",
        SHOP,
        3,
        (
            "Add rate limiting to the login endpoint, attackers try thousands of passwords.",
            "We decided to use a token bucket per address: five attempts, refilled once a minute.\n\n"
            "```python\nLIMIT = 5\n\ndef allow(address):\n    return buckets[address].take(LIMIT)\n```\n",
            "Good. What happens to people behind one proxy?",
            "They share a bucket. I raised the size for known proxies.",
        ),
    ),
    PastConversation(
        "pricing",
        SHOP,
        40,
        (
            "Computing the price of a cart takes two seconds because taxes are looked up again and again.",
            "Memoization helps here: the same tax is asked for thousands of times.\n\n"
            "```python\n@lru_cache(maxsize=None)\ndef tax_of(country, category):\n"
            "    return load_tax(country, category)\n```\n",
            "And the search box sends a request for every letter.",
            "Let us debounce it, so that it waits until the typing stops.\n\n"
            "```javascript\nlet timer;\ninput.oninput = () => {\n  clearTimeout(timer);\n"
            "  timer = setTimeout(search, 300);\n};\n```\n",
        ),
    ),
    PastConversation(
        "orders",
        SHOP,
        20,
        (
            "Two clerks edited one order at the same time and one change was lost.",
            "That is a case for optimistic locking. Each row gets a version, and an update names the one it read.\n\n"
            "```sql\nUPDATE orders SET state = :state, version = version + 1\n"
            "WHERE id = :id AND version = :version\n```\n",
            "Write the webhook retry code now, the receivers are often down.",
            "Done, it waits longer after each attempt.\n\n"
            "```python\nasync def deliver(url, body):\n    for wait in (1, 5, 25, 125):\n"
            "        if await post(url, body):\n            return True\n        await sleep(wait)\n"
            "    return False\n```\n",
            "Which library do we take for database changes?",
            "We chose alembic because it reads the models.",
        ),
    ),
    PastConversation(
        "settings",
        SHOP,
        12,
        (
            "The settings are read from disk in every request.",
            "First a singleton, so that they are read once:\n\n"
            "```python\nclass Settings:\n    _only = None\n\n    def __new__(cls):\n"
            "        cls._only = cls._only or super().__new__(cls)\n        return cls._only\n```\n\n"
            "And a circuit breaker around the mail server, which is often down:\n\n"
            "```python\nclass Guard:\n    def call(self, work):\n        if self.failures > 3:\n"
            "            raise Refused()\n        return work()\n```\n",
            "The CSV export of invoices leaves out the last line.",
            "The file was not flushed before it was sent. Fixed it by closing the writer first.\n\n"
            "```python\nwith open(path, 'w') as out:\n    csv.writer(out).writerows(rows)\nsend(path)\n```\n",
        ),
    ),
    PastConversation(
        "comments",
        BLOG,
        70,
        (
            "Build pagination for the list of comments.",
            "The list now has pages of twenty; the address names the last one seen.\n\n"
            "```python\ndef after(key, size=20):\n    return query.where(Comment.id > key).limit(size)\n```\n",
            "Which database should the blog use?",
            "We decided to use SQLite instead of Postgres, because one writer is enough.",
            "Readers want a dark theme.",
            "The colors are variables now.\n\n```css\n:root { --paper: #111; --ink: #eee; }\n```\n",
        ),
    ),
    PastConversation(
        "upload",
        BLOG,
        5,
        (
            "Uploading a picture fails with PayloadTooLargeError: request entity too large",
            "The proxy allowed one megabyte only. The fix was to raise client_max_body_size to twenty.\n\n"
            "```nginx\nclient_max_body_size 20m;\n```\n",
            "Thanks, it works now.",
            "Good. I also shrink pictures in the browser, with a canvas.\n\n"
            "```javascript\nfunction shrink(image) {\n  canvas.width = 800;\n"
            "  context.drawImage(image, 0, 0, 800, 600);\n  return canvas.toBlob();\n}\n```\n",
        ),
    ),
    PastConversation(
        "maze",
        GAME,
        9,
        (
            "How should enemies find their way through the maze?",
            "With a breadth-first search from the player, done once per frame:\n\n"
            "```rust\nfn spread(start: Cell) -> Map {\n    let mut queue = VecDeque::from([start]);\n"
            "    while let Some(cell) = queue.pop_front() { visit(cell); }\n}\n```\n",
            "The frame rate drops with many sparks.",
            "An object pool keeps dead sparks for later.\n\n"
            "```rust\nfn spawn(&mut self) -> &mut Spark {\n    self.free.pop().unwrap_or_else(Spark::new)\n}\n```\n",
        ),
    ),
)


def write_past_work(path: Path, now: datetime, conversations: Sequence[PastConversation] = CONVERSATIONS) -> Path:
    """Write the conversations as JSON Lines, as they happened before `now`."""
    lines = (json.dumps(line) for conversation in conversations for line in _list_lines(conversation, now))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _list_lines(conversation: PastConversation, now: datetime) -> Iterator[dict[str, str]]:
    started = now.astimezone(UTC) - timedelta(days=conversation.days_ago)
    for number, text in enumerate(conversation.turns):
        yield {
            "session": conversation.session,
            "author": ("user", "assistant")[number % 2],
            "timestamp": (started + timedelta(minutes=number)).isoformat(),
            "project": conversation.project,
            "text": text,
        }
