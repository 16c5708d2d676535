"""What accounts keep for themselves, in a data folder that the owner's commands look at."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from everkept.app.app import App
from everkept.core.sessions import Account, Session
from everkept.settings import read_settings

ANNA = Account("anna")
DIARY = "a diary about a quokka"
OWN = {"content": DIARY, "type": "semantic", "scope": "user"}


def called(data: Path, account: Account, *calls: tuple[str, Mapping[str, Any]]) -> list[Any]:
    """What an account is answered by the tools, one after the other."""

    async def work() -> list[Any]:
        settings = read_settings({"data_dir": data, "transport": "http", "config": "none"}, {})
        app = App(settings)
        session = Session(client="editor", account=account)
        try:
            return [(await app.call(session, tool, dict(given))).facts for tool, given in calls]
        finally:
            await app.close()

    return asyncio.run(work())


def made_account(data: Path, account: Account = ANNA) -> None:
    """Known to all servers of the folder, with a token."""

    async def work() -> None:
        app = App(read_settings({"data_dir": data, "config": "none"}, {}))
        try:
            await app.accounts.create_token(account.name, "")
        finally:
            await app.close()

    asyncio.run(work())


def kept_at_home(data: Path, account: Account = ANNA) -> None:
    """A memory that is the account's alone, which it has recalled."""
    made_account(data, account)
    called(data, account, ("store_memory", OWN), ("recall_memories", {"query": "quokka"}))


def recalled_at_home(data: Path, account: Account = ANNA) -> list[str]:
    """What an account finds of its own."""
    [found] = called(data, account, ("recall_memories", {"query": "quokka"}))
    return [each["content"] for each in found["memories"]]
