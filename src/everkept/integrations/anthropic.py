"""The memory tool of Anthropic's SDK, with its files in a memory bank, where people can read them."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from anthropic.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError

from everkept import AsyncMemory, EverkeptError, Memory


@contextmanager
def _translate_errors() -> Generator[None, None, None]:
    try:
        yield
    except EverkeptError as error:
        raise ToolError(str(error)) from error  # the model reads it


class EverkeptMemoryTool(BetaAbstractMemoryTool):
    """Memory tool for `tool_runner` of an `Anthropic` client, over `memory.files` of an open memory."""

    def __init__(self, memory: Memory, *, cache_control: Any = None) -> None:
        super().__init__(cache_control=cache_control)
        self._files = memory.files

    def view(self, command: Any) -> str:
        with _translate_errors():
            return self._files.view(command.path, command.view_range)

    def create(self, command: Any) -> str:
        with _translate_errors():
            return self._files.create(command.path, command.file_text)

    def str_replace(self, command: Any) -> str:
        with _translate_errors():
            return self._files.str_replace(command.path, command.old_str, command.new_str)

    def insert(self, command: Any) -> str:
        with _translate_errors():
            return self._files.insert(command.path, command.insert_line, command.insert_text)

    def delete(self, command: Any) -> str:
        with _translate_errors():
            return self._files.delete(command.path)

    def rename(self, command: Any) -> str:
        with _translate_errors():
            return self._files.rename(command.old_path, command.new_path)

    def clear_all_memory(self) -> str:
        with _translate_errors():
            return self._files.clear()


class AsyncEverkeptMemoryTool(BetaAsyncAbstractMemoryTool):
    """Memory tool for `tool_runner` of an `AsyncAnthropic` client, over `memory.files` of an open memory."""

    def __init__(self, memory: AsyncMemory, *, cache_control: Any = None) -> None:
        super().__init__(cache_control=cache_control)
        self._files = memory.files

    async def view(self, command: Any) -> str:
        with _translate_errors():
            return await self._files.view(command.path, command.view_range)

    async def create(self, command: Any) -> str:
        with _translate_errors():
            return await self._files.create(command.path, command.file_text)

    async def str_replace(self, command: Any) -> str:
        with _translate_errors():
            return await self._files.str_replace(command.path, command.old_str, command.new_str)

    async def insert(self, command: Any) -> str:
        with _translate_errors():
            return await self._files.insert(command.path, command.insert_line, command.insert_text)

    async def delete(self, command: Any) -> str:
        with _translate_errors():
            return await self._files.delete(command.path)

    async def rename(self, command: Any) -> str:
        with _translate_errors():
            return await self._files.rename(command.old_path, command.new_path)

    async def clear_all_memory(self) -> str:
        with _translate_errors():
            return await self._files.clear()
