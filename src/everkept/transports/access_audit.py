"""Access log entries for every tool and resource that an account uses."""

import asyncio
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast
from urllib.parse import unquote

from everkept.accounts.access_log import (
    LISTENING_OUTCOME,
    MAX_NAME_CHARACTERS,
    AccessLog,
    LoggedCall,
    clip_ids,
    clip_name,
)
from everkept.app.resources import PROJECT_GRAPH
from everkept.core.commits import collect_touched
from everkept.core.sessions import Account, ToolCall
from everkept.errors import EverkeptError, Unavailable, escape_name
from everkept.tools.tool import Effect
from everkept.transports.connection import JSON
from everkept.transports.dispatch import (
    Dispatcher,
    Handler,
    ProtocolError,
    Reply,
    Request,
    RequestResult,
    build_failure,
)
from everkept.transports.metrics import get_outcome
from everkept.values import replace

INVALID_OUTCOME = "invalid_request"
MAX_LOGGED_URIS = 5  # of one stream that a line lists first

log = logging.getLogger(__name__)

#: Notes what a handler does for an account.
AuditHandler = Callable[[Handler, Request, Account], Awaitable[Reply]]


def audit(dispatcher: Dispatcher, access_log: AccessLog) -> None:
    """Log each read and change of an account before it is answered.

    A change is logged before it starts, too: an answer can be withheld, a change cannot. Changes of the owner are only
    in the change log.
    """
    auditor = _Auditor(dispatcher, access_log)
    methods = dispatcher.methods
    audited: dict[str, AuditHandler] = {
        "tools/call": auditor.audit_call,
        "resources/read": auditor.audit_read,
        "resources/list": auditor.audit_list,
        "resources/subscribe": auditor.audit_subscribe,
        "subscriptions/listen": auditor.audit_listen,
    }
    methods.update({name: _audit_accounts(methods[name], how) for name, how in audited.items()})


def _audit_accounts(handler: Handler, audited: AuditHandler) -> Handler:
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

    async def audit_call(self, handler: Handler, request: Request, account: Account) -> Reply:
        access = self._build_call_access(request, account)
        try:
            access = await self._add_project(request, access)
            if self._is_write(access.what):
                return await self._log_before_and_after(handler, request, access)
            return await self._log_after(handler, request, access)
        except EverkeptError as error:
            return build_failure(error, account)

    async def audit_read(self, handler: Handler, request: Request, account: Account) -> Reply:
        access = self._build_resource_access(request, account, request.params.get("uri"), "")
        return await self._log_after(handler, request, access)

    async def audit_list(self, handler: Handler, request: Request, account: Account) -> Reply:
        access = self._build_access(request, account, "resources/list")
        return await self._log_after(handler, request, access)

    async def audit_subscribe(self, handler: Handler, request: Request, account: Account) -> Reply:
        uri = request.params.get("uri")
        access = self._build_resource_access(request, account, uri, "resources/subscribe ")
        # The answer is a stream, so it is logged before it begins.
        return await self._log_before_and_after(handler, request, access)

    async def audit_listen(self, handler: Handler, request: Request, account: Account) -> Reply:
        wanted = request.params.get("notifications")
        asked = cast(JSON, wanted) if isinstance(wanted, dict) else {}
        uris = [*_walk_texts(asked.get("resourceSubscriptions"))]
        what = " ".join(["subscriptions/listen", *uris[:MAX_LOGGED_URIS]])
        access = self._build_access(request, account, clip_name(what) or "")
        access = replace(access, count=len(uris), outcome=LISTENING_OUTCOME)
        return await self._log_before_and_after(handler, request, access)

    async def _log_before_and_after(self, handler: Handler, request: Request, access: LoggedCall) -> Reply:
        await asyncio.to_thread(self._log.write, access)
        ended, answer = await self._run_handler(handler, request, access)
        try:
            await asyncio.to_thread(self._log.write, ended)
        except Unavailable:
            # The change exists and its beginning is logged. An error would make the client repeat it.
            log.info("cannot log the end of %s by %s", escape_name(access.what), access.user)
        return _unwrap_answer(answer)

    async def _log_after(self, handler: Handler, request: Request, access: LoggedCall) -> Reply:
        ended, answer = await self._run_handler(handler, request, access)
        await asyncio.to_thread(self._log.write, ended)
        return _unwrap_answer(answer)

    async def _run_handler(
        self, handler: Handler, request: Request, access: LoggedCall
    ) -> tuple[LoggedCall, Reply | Exception]:
        """Return the outcome, and the answer: a result or an error."""
        answer: Reply | Exception
        with collect_touched() as touched:
            try:
                answer = await handler(request)
            except ProtocolError as error:
                answer, outcome = error, INVALID_OUTCOME
            except EverkeptError as error:
                answer, outcome = error, error.code
            else:
                outcome = get_outcome(answer)
                access = await self._add_project(request, access)  # it may exist now
        # Searching a large answer takes time. Changed ids come first.
        ids = await asyncio.to_thread(lambda: list(dict.fromkeys((*touched.ids, *_find_ids(answer)))))
        at = self._dispatcher.app.clock()
        ended = replace(access, at=at, outcome=outcome, count=len(ids) or access.count)
        return replace(ended, ids=clip_ids(ids)), answer

    def _build_call_access(self, request: Request, account: Account) -> LoggedCall:
        name = clip_name(request.params.get("name")) or ""
        asked = request.params.get("arguments")
        arguments = cast(JSON, asked) if isinstance(asked, dict) else {}
        named = clip_name(arguments.get("project") or arguments.get("project_filter"))
        if named is None and name.endswith("_project"):
            named = clip_name(arguments.get("name"))
        access = self._build_access(request, account, name)
        project = named or access.project
        return replace(access, project=project, length=sum(map(len, _walk_texts(arguments))))

    def _build_resource_access(self, request: Request, account: Account, uri: object, what: str) -> LoggedCall:
        named = clip_name(uri) or ""
        access = self._build_access(request, account, what + named)
        before, _, after = PROJECT_GRAPH.partition("{name}")
        if not named.startswith(before):
            return access
        name = clip_name(unquote(named.removeprefix(before).removesuffix(after)))
        return replace(access, project=name or access.project)

    async def _add_project(self, request: Request, access: LoggedCall) -> LoggedCall:
        """Add the project of the call, if it exists."""
        is_cut = access.project is not None and len(access.project) >= MAX_NAME_CHARACTERS
        if access.project_id is not None or is_cut:
            return access
        session = replace(request.session, project=access.project)
        try:
            project = await self._dispatcher.app.project_rule.find_active(ToolCall(session, access.what))
        except EverkeptError:
            return access  # the tool reports what is wrong with it
        if project is None:
            return access
        name = access.project or clip_name(project.name)
        return replace(access, project=name, project_id=project.id)

    def _build_access(self, request: Request, account: Account, what: str) -> LoggedCall:
        return LoggedCall(
            call=uuid.uuid4().hex,
            at=self._dispatcher.app.clock(),
            user=account.name,
            is_peer=account.is_peer,
            client=request.session.client,
            address=request.address,
            what=what,
            project=clip_name(request.session.project),
        )

    def _is_write(self, name: str) -> bool:
        tools = self._dispatcher.tools
        reading = (Effect.READS, Effect.SESSION_ONLY)
        return name in tools and tools.get(name).effect not in reading


def _unwrap_answer(answer: Reply | Exception) -> Reply:
    if isinstance(answer, Exception):
        raise answer
    return answer


def _find_ids(result: Reply | Exception) -> Iterator[str]:
    """Return the ids of records, projects and other things in an answer, in order."""
    if isinstance(result, Exception):
        return
    if isinstance(result, RequestResult):
        result = result.as_json()
    if result.get("isError") is not True:
        yield from _walk_ids(result.get("structuredContent"))
    for content in cast(list[JSON], result.get("contents") or []):
        if content.get("mimeType") == "application/json":
            yield from _walk_ids(json.loads(content["text"]))


def _walk_ids(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in cast(JSON, value).items():
            yield from _walk_ids(item, name)
    elif isinstance(value, list):
        for item in cast(list[Any], value):
            yield from _walk_ids(item, key)
    elif isinstance(value, str) and value and _is_id_key(key):
        yield value


def _is_id_key(key: str) -> bool:
    return key in ("id", "ids") or key.endswith(("_id", "_ids"))


def _walk_texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in cast(JSON, value).values():
            yield from _walk_texts(item)
    elif isinstance(value, list):
        for item in cast(list[Any], value):
            yield from _walk_texts(item)
    elif isinstance(value, str):
        yield value
