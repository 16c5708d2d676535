from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from console_calls import ConsoleClient
from conversations import tell
from everkept.console.page_states import PageStates
from everkept.core.ports import Library
from everkept.core.sessions import Account, Session, act_as
from everkept.errors import Refused

Change = Callable[[ConsoleClient, Path], Awaitable[object]]


@pytest.fixture
async def client(library: Library, tmp_path: Path) -> AsyncIterator[ConsoleClient]:
    """The console of a folder with a memory bank."""
    (tmp_path / "memory-bank").mkdir()
    (tmp_path / "memory-bank" / "progress.md").write_text("begun")
    client = ConsoleClient(library, tmp_path, lambda: 0.0, path=tmp_path, toolsets="memories,graph,bank,history")
    await client.call("create_project", name="shop")
    yield client
    await client.app.close()


async def change_bank(_: ConsoleClient, folder: Path) -> None:
    (folder / "memory-bank" / "progress.md").write_text("begun, and ended")


async def change_care(_: ConsoleClient, folder: Path) -> None:
    (folder / "data-backups").mkdir()
    (folder / "data-backups" / "new.zip").write_bytes(b"")


async def change_conversations(client: ConsoleClient, _: Path) -> None:
    await tell(await client.app.library.open_history_store(), "one", "a question", "an answer", project="/home/ada")


async def change_exclusions(client: ConsoleClient, _: Path) -> None:
    await client.app.history.exclude("/home/ada")


async def change_health(_: ConsoleClient, folder: Path) -> None:
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "another.db").write_bytes(b"")


async def change_team(client: ConsoleClient, _: Path) -> None:
    await client.app.accounts.create_token("mira", "")


async def change_calls(client: ConsoleClient, _: Path) -> None:
    await client.call("create_account_token", account="jon")


@pytest.mark.parametrize(
    ("page", "change"),
    [
        ("bank", change_bank),
        ("care", change_care),
        ("conversations", change_conversations),
        ("conversations", change_exclusions),
        ("health", change_health),
        ("team", change_team),
        ("team", change_calls),
    ],
)
async def test_the_state_of_a_page_is_equal_until_what_it_shows_changes(
    page: str, change: Change, client: ConsoleClient, tmp_path: Path
) -> None:
    states, session = PageStates(client.app), Session()
    before = await states.read(page, session)
    await client.remember("which only other pages show")
    assert await states.read(page, session) == before
    await change(client, tmp_path)
    assert await states.read(page, session) != before


async def test_only_the_owner_follows_the_state_of_a_page(client: ConsoleClient) -> None:
    with act_as(Account("mira")), pytest.raises(Refused):
        await PageStates(client.app).read("team", Session())
