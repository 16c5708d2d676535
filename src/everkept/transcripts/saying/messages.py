"""Messages as programs write them, and how they join into turns."""

from collections import Counter
from collections.abc import Sequence

from everkept.core.transcripts import ASSISTANT, Snippet, Turn
from everkept.transcripts.limits import MOST_CODE
from everkept.transcripts.saying.turns import OpenTurn
from everkept.values import Value

_MOST_MESSAGES = 200  # of an answer, so that one without an end has parts


class Message(Value):
    """What was said at once, with the tools that were used along with it."""

    id: str
    author: str
    text: str = ""
    at: int | None = None
    model: str | None = None
    files: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    snippets: tuple[Snippet, ...] = ()
    failures: tuple[str, ...] = ()
    is_summary: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.tools or self.snippets or self.failures)


class Setting(Value):
    """What is the same for all turns of a conversation."""

    session: str
    project: str | None = None
    branch: str | None = None
    model: str | None = None  # where the message names none
    part_of: str | None = None
    reader: str | None = None


def belongs(message: Message, answer: Sequence[Message]) -> bool:
    """Whether it goes on with an answer: that has one text, and the uses of tools around it."""
    if not answer or message.author != ASSISTANT or len(answer) == _MOST_MESSAGES:
        return False
    has_text = any(earlier.text for earlier in answer)
    return not (message.text and has_text) and sum(map(_weight, answer)) < MOST_CODE


def turn_of(
    messages: Sequence[Message], key: str, setting: Setting, skipped: Counter[str] | None = None
) -> Turn:
    """The turn that they are together; there is at least one.

    What is too much for a turn is counted as skipped, where the turn is closed.
    """
    begun = Turn(
        key=key,
        session=setting.session,
        author=messages[0].author,
        text="",
        at=next((message.at for message in messages if message.at is not None), None),
        branch=setting.branch,
        model=next((message.model for message in messages if message.model), setting.model),
        is_summary=any(message.is_summary for message in messages),
        part_of=setting.part_of,
        reader=setting.reader,
    )
    turn = OpenTurn(begun, Counter() if skipped is None else skipped)
    for message in messages:
        turn.say(message.text)
        turn.touch(message.files)
        turn.write("", message.snippets)
        for tool in message.tools:
            turn.use(tool)
        for failure in message.failures:
            turn.fail("", failure)
    return turn.turn(setting.project)


def _weight(message: Message) -> int:
    code = sum(len(snippet.text) + len(snippet.replaced or "") for snippet in message.snippets)
    return len(message.text) + code
