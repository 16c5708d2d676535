import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.core.sessions import Account, Session
from everkept.errors import (
    EverkeptError,
    ModelUnavailable,
    NotFound,
    QueryTimeout,
    StorageFull,
    StoreDamaged,
    StoreTooNew,
    StoreUnreachable,
)
from everkept.settings import Settings
from everkept.transports.connection import JSON, ClientConnection, redact_for_account
from everkept.transports.dispatch import Dispatcher, ProtocolError, Request
from server_processes import META

ANNA = Account("anna")
PLACE = "db.internal:5432"
FAILURES = [
    StoreUnreachable(f"{PLACE} cannot be reached.", hint=f"Look at {PLACE}.", place=PLACE),
    QueryTimeout(f"{PLACE} took too long."),
    StorageFull(f"No room on {PLACE}.", path=PLACE),
    StoreDamaged(f"{PLACE} is no database."),
    StoreTooNew(f"{PLACE} is newer."),
    ModelUnavailable(PLACE, "is missing"),
]


@pytest.fixture
async def dispatcher(tmp_path: Path) -> AsyncIterator[Dispatcher]:
    app = App(Settings(tmp_path, embedding_model="none"))
    yield Dispatcher(app)
    await app.close()


async def answered(dispatcher: Dispatcher, account: Account | None, method: str) -> str:
    async def unheard(_method: str, _params: JSON) -> None: ...

    try:
        result = await dispatcher.handle(
            ClientConnection(Session(account=account)),
            1,
            method,
            {"_meta": META, "name": "list_projects"},
            notify=unheard,
            announce=unheard,
        )
    except ProtocolError as error:
        return json.dumps(error.as_json())
    return json.dumps(result.as_json())


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: error.code)
def test_an_account_learns_what_to_do_and_not_where_the_server_keeps_things(error: EverkeptError) -> None:
    told = redact_for_account(ANNA, error)
    assert PLACE not in json.dumps(told.to_envelope()) + str(told)
    envelope = error.to_envelope()
    kept = ("error", "degraded", "retry_possible")
    assert {key: told.to_envelope()[key] for key in kept} == {key: envelope[key] for key in kept}
    assert redact_for_account(None, error) is error


def test_the_mistakes_of_a_caller_are_told_whole() -> None:
    error = NotFound("project", "p")
    assert redact_for_account(ANNA, error) is error


@pytest.mark.parametrize("method", ["tools/call", "resources/list"])
async def test_every_answer_to_an_account_is_plain(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    async def away(*_given: Any, **_more: Any) -> Any:
        raise FAILURES[0]

    monkeypatch.setattr(dispatcher.app.library, "ask", away)
    told = await answered(dispatcher, ANNA, method)
    assert "memory_unavailable" in told
    assert PLACE not in told
    assert PLACE in await answered(dispatcher, None, method)


async def test_a_method_of_its_own_is_no_exception(dispatcher: Dispatcher) -> None:
    async def fail(_request: Request) -> JSON:
        raise FAILURES[1]

    dispatcher.methods["test/fail"] = fail
    assert PLACE not in await answered(dispatcher, ANNA, "test/fail")
    assert PLACE in await answered(dispatcher, None, "test/fail")
