"""Calling tools as a client does."""

from typing import Any

from everkept.app.app import App
from everkept.core.sessions import Session


class Client:
    """Calls tools by name and gives their structured answers."""

    def __init__(self, app: App, session: Session | None = None) -> None:
        self.app = app
        self.session = session or Session(client="test")

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return (await self.app.call(self.session, tool, arguments)).facts

    async def text(self, tool: str, **arguments: Any) -> str:
        return (await self.app.call(self.session, tool, arguments)).text

    async def names(self, query: str, **more: Any) -> list[str]:
        found = await self("search_nodes", query=query, **more)
        return [entity["name"] for entity in found["entities"]]
