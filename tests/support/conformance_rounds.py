"""Fixtures of the conformance suite that ask the client something before they answer."""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Any, cast

from everkept.transports.connection import JSON
from everkept.transports.dispatch import CLIENT_CAPABILITIES, INVALID_PARAMS, ProtocolError, Request
from everkept.transports.http_requests import MISSING_CAPABILITY
from everkept.values import Value

Question = JSON  # a request to the client: its method and params
Answers = Mapping[str, JSON]

NEEDS = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


def text_block(text: str) -> JSON:
    return {"type": "text", "text": text}


def form(message: str, properties: JSON, required: tuple[str, ...] = ()) -> Question:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    params = {"message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def sample(prompt: str, tokens: int = 100) -> Question:
    message = {"role": "user", "content": text_block(prompt)}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": tokens}}


ROOTS: Question = {"method": "roots/list", "params": {}}


class Rounds(Value):
    """Asks the client one set of questions after the other, then answers.

    The handshake eras put a question to the client directly. In the stateless era the answer says
    what is asked, and the client calls again with its replies and the state we gave it, which is
    signed because anybody may have written it.
    """

    rounds: tuple[Mapping[str, Question], ...]
    finish: Callable[[Answers], JSON]
    keeps_state: bool = False

    async def run(self, request: Request) -> JSON:
        if request.is_stateless:
            return self._step(request)
        if request.ask is None:
            return {"content": [text_block("This connection carries no questions.")], "isError": True}
        answers: dict[str, JSON] = {}
        for questions in self.rounds:
            for key, question in questions.items():
                answers[key] = await request.ask(question["method"], question["params"])
        return self.finish(answers)

    def _step(self, request: Request) -> JSON:
        replies = request.params.get("inputResponses", {})
        if not isinstance(replies, dict):
            raise ProtocolError(INVALID_PARAMS, "`inputResponses` must be an object.")
        name = str(request.params.get("name"))
        reached = _opened(name, request.params.get("requestState")) if self.keeps_state else 0
        answers = cast(Answers, replies)
        if reached is None or not _are_complete(self.rounds[reached], answers):
            return self._asking(request, name, reached or 0)
        if reached + 1 < len(self.rounds):
            return self._asking(request, name, reached + 1)
        return self.finish(answers)

    def _asking(self, request: Request, name: str, number: int) -> JSON:
        can = cast(JSON, request.params["_meta"])[CLIENT_CAPABILITIES]
        questions = self.rounds[number]
        asked = {key: q for key, q in questions.items() if NEEDS[q["method"]] in can}
        if not asked:
            required: JSON = {NEEDS[q["method"]]: {} for q in questions.values()}
            raise ProtocolError(
                MISSING_CAPABILITY,
                f"The client must be capable of {', '.join(required)}.",
                {"requiredCapabilities": required},
            )
        result: JSON = {"resultType": "input_required", "inputRequests": asked}
        return result | {"requestState": _sealed(name, number)} if self.keeps_state else result


def _are_complete(questions: Mapping[str, Question], answers: Answers) -> bool:
    return all(
        isinstance(answers.get(key), dict) and (question["method"] != "elicitation/create" or "action" in answers[key])
        for key, question in questions.items()
    )


_KEY = secrets.token_bytes(32)


def _sealed(name: str, number: int) -> str:
    seal = hmac.new(_KEY, f"{name} {number}".encode(), hashlib.sha256)
    return f"{number}.{seal.hexdigest()}"


def _opened(name: str, state: Any) -> int | None:
    """The round that the state stands for; None where there is no state yet."""
    if state is None:
        return None
    number = str(state).partition(".")[0]
    if not number.isdecimal() or not hmac.compare_digest(_sealed(name, int(number)), str(state)):
        raise ProtocolError(INVALID_PARAMS, "`requestState` is not what this server gave out.")
    return int(number)
