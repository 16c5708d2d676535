"""Requests that peers may send: a search in the data shared with them, and this server's name."""

import asyncio
import json
import logging
import uuid
from collections.abc import Callable
from typing import Any, cast

from everkept import __version__
from everkept.accounts.access_log import MAX_NAME_CHARACTERS, AccessLog, LoggedCall, clip_ids
from everkept.app.search_sources import SharedFindings, SharedSearch
from everkept.core.answers import SearchFinding
from everkept.core.peers import (
    INFO_PATH,
    MAX_QUESTION_CHARACTERS,
    MAX_RESULTS,
    PROTOCOL_VERSION,
    RESULT_TYPES,
    SEARCH_PATH,
    PeerQuestion,
)
from everkept.core.sessions import Account, act_as
from everkept.core.times import Clock, format_iso
from everkept.errors import EverkeptError, InvalidInput
from everkept.transports.http_exchange import (
    ASGIApp,
    Message,
    Receive,
    Refusal,
    Send,
    get_account,
    get_client_address,
    restrict_to_get,
    send_answer,
    send_refusal,
)

MAX_BODY_BYTES = 128 * 1024  # of a question
DEFAULT_RESULTS = 10
PEERS_ONLY_MESSAGE = "Only tokens of other servers may be used here. To create one, run `everkept token --peer NAME`."

JSON = dict[str, Any]

log = logging.getLogger(__name__)


def build_peer_routes(sharing: Callable[[], SharedSearch], access_log: AccessLog, clock: Clock) -> dict[str, ASGIApp]:
    """Return the routes. They are behind the guard, which identifies the token."""
    endpoint = _PeerEndpoint(sharing, access_log, clock)
    return {
        SEARCH_PATH: _restrict_to_peers(endpoint.search),
        INFO_PATH: _restrict_to_peers(restrict_to_get(_answer_info)),
    }


def _restrict_to_peers(app: ASGIApp) -> ASGIApp:
    """Refuse the owner and users, who can ask more through the protocol."""

    async def guarded(scope: Message, receive: Receive, send: Send) -> None:
        account = get_account(scope)
        if account is None or not account.is_peer:
            await send_refusal(send, Refusal(403, PEERS_ONLY_MESSAGE))
            return
        with act_as(account):
            await app(scope, receive, send)

    return guarded


async def _answer_info(_scope: Message, _receive: Receive, send: Send) -> None:
    await send_answer(send, 200, _encode_json({"name": "everkept", "version": __version__}))


class _PeerEndpoint:
    def __init__(self, sharing: Callable[[], SharedSearch], access_log: AccessLog, clock: Clock) -> None:
        self._sharing = sharing
        self._log = access_log
        self._clock = clock

    async def search(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            allowed = ((b"allow", b"POST"),)
            await send_refusal(send, Refusal(405, f"{scope['method']} does nothing here.", allowed))
            return
        try:
            question = _parse_question(await _read_body(receive))
        except InvalidInput as error:
            await send_refusal(send, Refusal(400, str(error)))
            return
        try:
            found = await self._sharing().search(question)
            await self._log_access(scope, question, found.results)
        except EverkeptError as error:
            # Another server does not need to know more about a failure here.
            log.warning("cannot answer a peer: %s", error)
            await send_refusal(send, Refusal(503, "Search does not work at the moment."))
            return
        await send_answer(send, 200, _encode_json(_to_json(found)))

    async def _log_access(self, scope: Message, question: PeerQuestion, results: list[SearchFinding]) -> None:
        """Log the access before the answer. Without a log entry there is no answer."""
        account = cast(Account, get_account(scope))
        projects = dict.fromkeys(each.project for each in results if each.project)
        access = LoggedCall(
            call=uuid.uuid4().hex,
            at=self._clock(),
            user=account.name,
            is_peer=True,
            client="",
            address=get_client_address(scope),
            what=SEARCH_PATH,
            project=", ".join(projects)[:MAX_NAME_CHARACTERS] or None,
            length=len(question.query),
            outcome="ok",
            count=len(results),
            ids=clip_ids(each.id for each in results),
        )
        await asyncio.to_thread(self._log.write, access)


async def _read_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidInput("The connection ended before the question was complete.", hint="Send it again.")
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise InvalidInput(f"A question must have at most {MAX_BODY_BYTES:,} bytes.")
        if not message.get("more_body"):
            return bytes(body)


def _parse_question(body: bytes) -> PeerQuestion:
    try:
        value: object = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidInput("A question must be a JSON object.")
    asked = cast(JSON, value)
    version, query = asked.get("version"), asked.get("query")
    if version != PROTOCOL_VERSION:
        raise InvalidInput(f"`version` must be {PROTOCOL_VERSION}, the only one that this server supports.")
    if not isinstance(query, str) or not query.strip():
        raise InvalidInput("`query` must be a text that is not empty.")
    if len(query) > MAX_QUESTION_CHARACTERS:
        raise InvalidInput(f"`query` must have at most {MAX_QUESTION_CHARACTERS:,} characters.")
    readable = query.encode("utf-8", "replace").decode()
    return PeerQuestion(readable, _parse_types(asked.get("types")), _parse_limit(asked.get("limit")))


def _parse_types(given: object) -> tuple[str, ...]:
    if given is None:
        return ()
    listed = cast("list[object]", given) if isinstance(given, list) else [None]
    if not listed or not all(each in RESULT_TYPES for each in listed):
        raise InvalidInput(f"`types` must list some of {', '.join(RESULT_TYPES)}.")
    return tuple(dict.fromkeys(cast("list[str]", listed)))


def _parse_limit(given: object) -> int:
    if given is None:
        return DEFAULT_RESULTS
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MAX_RESULTS:
        raise InvalidInput(f"`limit` must be a number from 1 to {MAX_RESULTS}.")
    return given


def _to_json(found: SharedFindings) -> JSON:
    results = [
        {
            "id": each.id,
            "type": each.type,
            "content": each.content,
            "score": each.score,
            "title": each.title,
            "project": each.project,
            "at": None if each.at is None else format_iso(each.at),
        }
        for each in found.results
    ]
    return {"version": PROTOCOL_VERSION, "results": results, "warnings": found.warnings}


def _encode_json(value: JSON) -> bytes:
    return json.dumps(value).encode("ascii")
