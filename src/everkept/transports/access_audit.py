"""Puts the access log before every tool and resource that an account may use."""

import asyncio
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast
from urllib.parse import unquote

from everkept.accounts.access_log import (
    LISTENING,
    LONGEST,
    Access,
    AccessLog,
    clipped_ids,
    clipped_name,
)
from everkept.app.resources import PROJECT_GRAPH
from everkept.core.commits import touching
from everkept.core.sessions import Account, Call
from everkept.errors import EverkeptError, Unavailable, visible
from everkept.tools.tool import Effect
from everkept.transports.connection import JSON
from everkept.transports.dispatch import (
    Answer,
    Dispatcher,
    Handler,
    ProtocolError,
    Reply,
    Request,
    failed,
)
from everkept.transports.metrics import outcome_of
from everkept.values import replace

INVALID = "invalid_request"
MOST_IN_ONE = 5  # addresses of one stream that its line begins with

log = logging.getLogger(__name__)

#: Notes what a handler does for an account.
Audited = Callable[[Handler, Request, Account], Awaitable[Reply]]


def audit(dispatcher: Dispatcher, access_log: AccessLog) -> None:
    """From now on what an account reads and changes is noted before it is answered.

    What changes something is noted before it is done too: an answer can be held back, a change
    cannot be. What the owner changes is in the change log alone.
    """
    auditor = _Auditor(dispatcher, access_log)
    methods = dispatcher.methods
    audited: dict[str, Audited] = {
        "tools/call": auditor.call,
        "resources/read": auditor.read,
        "resources/list": auditor.show,
        "resources/subscribe": auditor.subscribe,
        "subscriptions/listen": auditor.listen,
    }
    methods.update({name: _for_accounts(methods[name], how) for name, how in audited.items()})


def _for_accounts(handler: Handler, audited: Audited) -> Handler:
    async def handle(request: Request) -> Reply:
        account = request.session.account
        if account is None:
            return await handler(request)
        return await audited(handler, request, account)

    return handle


class _Auditor:
    def __init__(self, dispatcher: Dispatcher, access_log: AccessLog) -> None:
        self._dispatcher = dispatcher
        self._log = access_log

    async def call(self, handler: Handler, request: Request, account: Account) -> Reply:
        access = self._call(request, account)
        try:
            access = await self._placed(request, access)
            if self._changes_something(access.what):
                return await self._changed(handler, request, access)
            return await self._noted(handler, request, access)
        except EverkeptError as error:
            return failed(error, account)

    async def read(self, handler: Handler, request: Request, account: Account) -> Reply:
        access = self._of_resource(request, account, request.params.get("uri"), "")
        return await self._noted(handler, request, access)

    async def show(self, handler: Handler, request: Request, account: Account) -> Reply:
        access = self._access(request, account, "resources/list")
        return await self._noted(handler, request, access)

    async def subscribe(self, handler: Handler, request: Request, account: Account) -> Reply:
        uri = request.params.get("uri")
        access = self._of_resource(request, account, uri, "resources/subscribe ")
        # It begins before it is answered, so it is noted before it begins.
        return await self._changed(handler, request, access)

    async def listen(self, handler: Handler, request: Request, account: Account) -> Reply:
        wanted = request.params.get("notifications")
        asked = cast(JSON, wanted) if isinstance(wanted, dict) else {}
        uris = [*_texts(asked.get("resourceSubscriptions"))]
        what = " ".join(["subscriptions/listen", *uris[:MOST_IN_ONE]])
        access = self._access(request, account, clipped_name(what) or "")
        access = replace(access, count=len(uris), outcome=LISTENING)
        return await self._changed(handler, request, access)

    async def _changed(self, handler: Handler, request: Request, access: Access) -> Reply:
        await asyncio.to_thread(self._log.write, access)
        ended, answer = await self._ended(handler, request, access)
        try:
            await asyncio.to_thread(self._log.write, ended)
        except Unavailable:
            # It is done, and its beginning is noted: an error would have it done once more.
            log.info("the end of %s by %s is not noted", visible(access.what), access.user)
        return _given(answer)

    async def _noted(self, handler: Handler, request: Request, access: Access) -> Reply:
        ended, answer = await self._ended(handler, request, access)
        await asyncio.to_thread(self._log.write, ended)
        return _given(answer)

    async def _ended(
        self, handler: Handler, request: Request, access: Access
    ) -> tuple[Access, Reply | Exception]:
        """How it ended, and what is to be answered: a result, or the error that came instead."""
        answer: Reply | Exception
        with touching() as touched:
            try:
                answer = await handler(request)
            except ProtocolError as error:
                answer, outcome = error, INVALID
            except EverkeptError as error:
                answer, outcome = error, error.code
            else:
                outcome = outcome_of(answer)
                access = await self._placed(request, access)  # it may be there since
        # A large answer takes a moment to look through. What was changed is named first.
        ids = await asyncio.to_thread(lambda: list(dict.fromkeys((*touched.ids, *_ids(answer)))))
        at = self._dispatcher.app.clock()
        ended = replace(access, at=at, outcome=outcome, count=len(ids) or access.count)
        return replace(ended, ids=clipped_ids(ids)), answer

    def _call(self, request: Request, account: Account) -> Access:
        name = clipped_name(request.params.get("name")) or ""
        asked = request.params.get("arguments")
        arguments = cast(JSON, asked) if isinstance(asked, dict) else {}
        named = clipped_name(arguments.get("project") or arguments.get("project_filter"))
        if named is None and name.endswith("_project"):
            named = clipped_name(arguments.get("name"))
        access = self._access(request, account, name)
        project = named or access.project
        return replace(access, project=project, length=sum(map(len, _texts(arguments))))

    def _of_resource(self, request: Request, account: Account, uri: object, what: str) -> Access:
        named = clipped_name(uri) or ""
        access = self._access(request, account, what + named)
        before, _, after = PROJECT_GRAPH.partition("{name}")
        if not named.startswith(before):
            return access
        name = clipped_name(unquote(named.removeprefix(before).removesuffix(after)))
        return replace(access, project=name or access.project)

    async def _placed(self, request: Request, access: Access) -> Access:
        """With the project that the call means, where there is one already."""
        is_cut = access.project is not None and len(access.project) >= LONGEST
        if access.project_id is not None or is_cut:
            return access
        session = replace(request.session, project=access.project)
        try:
            project = await self._dispatcher.app.choice.current(Call(session, access.what))
        except EverkeptError:
            return access  # what is wrong with it is told where it is used
        if project is None:
            return access
        name = access.project or clipped_name(project.name)
        return replace(access, project=name, project_id=project.id)

    def _access(self, request: Request, account: Account, what: str) -> Access:
        return Access(
            call=uuid.uuid4().hex,
            at=self._dispatcher.app.clock(),
            user=account.name,
            is_peer=account.is_peer,
            client=request.session.client,
            address=request.address,
            what=what,
            project=clipped_name(request.session.project),
        )

    def _changes_something(self, name: str) -> bool:
        tools = self._dispatcher.tools
        reading = (Effect.READS, Effect.SELECTS)
        return name in tools and tools.get(name).effect not in reading


def _given(answer: Reply | Exception) -> Reply:
    if isinstance(answer, Exception):
        raise answer
    return answer


def _ids(result: Reply | Exception) -> Iterator[str]:
    """Of records, projects and whatever else has one, in the order in which they came out."""
    if isinstance(result, Exception):
        return
    if isinstance(result, Answer):
        result = result.as_json()
    if result.get("isError") is not True:
        yield from _ids_in(result.get("structuredContent"))
    for content in cast(list[JSON], result.get("contents") or []):
        if content.get("mimeType") == "application/json":
            yield from _ids_in(json.loads(content["text"]))


def _ids_in(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in cast(JSON, value).items():
            yield from _ids_in(item, name)
    elif isinstance(value, list):
        for item in cast(list[Any], value):
            yield from _ids_in(item, key)
    elif isinstance(value, str) and value and _holds_ids(key):
        yield value


def _holds_ids(key: str) -> bool:
    return key in ("id", "ids") or key.endswith(("_id", "_ids"))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in cast(JSON, value).values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in cast(list[Any], value):
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
