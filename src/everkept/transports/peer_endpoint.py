"""What other servers may ask this one: a search of what is granted to them, and what we are."""

import asyncio
import json
import logging
import uuid
from collections.abc import Callable
from typing import Any, cast

from everkept import __version__
from everkept.accounts.access_log import LONGEST, Access, AccessLog, clipped_ids
from everkept.app.search import Shared, SharedSearch
from everkept.core.answers import Finding
from everkept.core.peers import (
    INFO_PATH,
    MOST_RESULTS,
    PROTOCOL,
    QUESTION_LIMIT,
    SEARCH_PATH,
    TYPES,
    PeerQuestion,
)
from everkept.core.sessions import Account, acting_as
from everkept.core.times import Clock, iso
from everkept.errors import EverkeptError, InvalidInput
from everkept.transports.http_exchange import (
    ASGIApp,
    Message,
    Receive,
    Refusal,
    Send,
    account_in,
    address_in,
    answer,
    for_reading,
    refuse,
)

LARGEST = 128 * 1024  # bytes of a question
DEFAULT_RESULTS = 10
NO_PEER = "This is for the tokens of other servers; `everkept token --peer NAME` makes one."

JSON = dict[str, Any]

log = logging.getLogger(__name__)


def peer_routes(
    sharing: Callable[[], SharedSearch], access_log: AccessLog, clock: Clock
) -> dict[str, ASGIApp]:
    """By their paths; they stand behind the guard, which knows whose token it is."""
    endpoint = _Endpoint(sharing, access_log, clock)
    return {
        SEARCH_PATH: _for_peers(endpoint.search),
        INFO_PATH: _for_peers(for_reading(_info)),
    }


def _for_peers(app: ASGIApp) -> ASGIApp:
    """Owner and users have the protocol, in which more can be asked."""

    async def guarded(scope: Message, receive: Receive, send: Send) -> None:
        account = account_in(scope)
        if account is None or not account.is_peer:
            await refuse(send, Refusal(403, NO_PEER))
            return
        with acting_as(account):
            await app(scope, receive, send)

    return guarded


async def _info(_scope: Message, _receive: Receive, send: Send) -> None:
    await answer(send, 200, _written({"name": "everkept", "version": __version__}))


class _Endpoint:
    def __init__(
        self, sharing: Callable[[], SharedSearch], access_log: AccessLog, clock: Clock
    ) -> None:
        self._sharing = sharing
        self._log = access_log
        self._clock = clock

    async def search(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            allowed = ((b"allow", b"POST"),)
            await refuse(send, Refusal(405, f"{scope['method']} does nothing here.", allowed))
            return
        try:
            question = _question(await _body(receive))
        except InvalidInput as error:
            await refuse(send, Refusal(400, str(error)))
            return
        try:
            found = await self._sharing().search(question)
            await self._note(scope, question, found.results)
        except EverkeptError as error:
            # Of a failure here nobody else needs to know more.
            log.warning("a peer was not answered: %s", error)
            await refuse(send, Refusal(503, "Nothing can be searched at the moment."))
            return
        await answer(send, 200, _written(_told(found)))

    async def _note(self, scope: Message, question: PeerQuestion, results: list[Finding]) -> None:
        """Before it is answered: what cannot be noted is not told."""
        account = cast(Account, account_in(scope))
        projects = dict.fromkeys(each.project for each in results if each.project)
        access = Access(
            call=uuid.uuid4().hex,
            at=self._clock(),
            user=account.name,
            is_peer=True,
            client="",
            address=address_in(scope),
            what=SEARCH_PATH,
            project=", ".join(projects)[:LONGEST] or None,
            length=len(question.query),
            outcome="ok",
            count=len(results),
            ids=clipped_ids(each.id for each in results),
        )
        await asyncio.to_thread(self._log.write, access)


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidInput("The question ended too soon.")
        body += message.get("body", b"")
        if len(body) > LARGEST:
            raise InvalidInput(f"A question may have {LARGEST:,} bytes at most.")
        if not message.get("more_body"):
            return bytes(body)


def _question(body: bytes) -> PeerQuestion:
    try:
        value: object = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidInput("A question is a JSON object.")
    asked = cast(JSON, value)
    version, query = asked.get("version"), asked.get("query")
    if version != PROTOCOL:
        raise InvalidInput(f"`version` must be {PROTOCOL}: this server knows no other.")
    if not isinstance(query, str) or not query.strip():
        raise InvalidInput("`query` must be a text that is not blank.")
    if len(query) > QUESTION_LIMIT:
        raise InvalidInput(f"`query` may have {QUESTION_LIMIT:,} characters at most.")
    readable = query.encode("utf-8", "replace").decode()
    return PeerQuestion(readable, _types(asked.get("types")), _limit(asked.get("limit")))


def _types(given: object) -> tuple[str, ...]:
    if given is None:
        return ()
    listed = cast("list[object]", given) if isinstance(given, list) else [None]
    if not listed or not all(each in TYPES for each in listed):
        raise InvalidInput(f"`types` must list some of {', '.join(TYPES)}.")
    return tuple(dict.fromkeys(cast("list[str]", listed)))


def _limit(given: object) -> int:
    if given is None:
        return DEFAULT_RESULTS
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MOST_RESULTS:
        raise InvalidInput(f"`limit` must be a number from 1 to {MOST_RESULTS}.")
    return given


def _told(found: Shared) -> JSON:
    results = [
        {
            "id": each.id,
            "type": each.type,
            "content": each.content,
            "score": each.score,
            "title": each.title,
            "project": each.project,
            "at": None if each.at is None else iso(each.at),
        }
        for each in found.results
    ]
    return {"version": PROTOCOL, "results": results, "warnings": found.warnings}


def _written(value: JSON) -> bytes:
    return json.dumps(value).encode("ascii")
