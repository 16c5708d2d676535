"""A connection that passes on what goes through it, for those that do something beside."""

from everkept.engines.surreal.connection import Connection


class Passing:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def is_modern(self) -> bool:
        return self._connection.is_modern

    @property
    def version(self) -> str:
        return self._connection.version

    @property
    def openings(self) -> int:
        return self._connection.openings

    async def measure_files(self) -> int | None:
        return await self._connection.measure_files()

    async def open(self) -> None:
        await self._connection.open()

    async def close(self) -> None:
        await self._connection.close()
