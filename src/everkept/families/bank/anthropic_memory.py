"""Dialect of Anthropic's memory tool: one tool with six commands over the memory files of a bank."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal

from everkept.core.sessions import ToolCall
from everkept.errors import InvalidInput
from everkept.families.bank.memory_files import MemoryFiles
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, Tool, ToolFamily, tool
from everkept.values import Value, replace

Command = Literal["view", "create", "str_replace", "insert", "delete", "rename"]
# The arguments that each command needs. Others are optional or belong to other commands.
_NEEDED: Mapping[Command, tuple[str, ...]] = {
    "view": ("path",),
    "create": ("path", "file_text"),
    "str_replace": ("path", "old_str"),
    "insert": ("path", "insert_line", "insert_text"),
    "delete": ("path",),
    "rename": ("old_path", "new_path"),
}


class MemoryToolText(Value):
    """The text that a command returns to the model."""

    text: str

    @property
    def sentence(self) -> str:
        return self.text


class AnthropicMemoryTools(ToolFamily):
    """The tool `memory`. On a read-only server it only views."""

    def __init__(self, files: MemoryFiles, *, read_only: bool) -> None:
        self._files = files
        self._read_only = read_only

    def list_tools(self) -> list[Tool]:
        tools = super().list_tools()
        return [replace(each, effect=Effect.READS) for each in tools] if self._read_only else tools

    @tool(Effect.DESTROYS)
    async def memory(
        self,
        call: ToolCall,
        command: Annotated[Command, Field("What to do")],
        path: Annotated[str, Field("File or folder below /memories; for all commands but rename")] | None = None,
        view_range: Annotated[list[int], Field("view: numbers of the first and last line; -1 is the end")]
        | None = None,
        file_text: Annotated[str, Field("create: content of the new file")] | None = None,
        old_str: Annotated[str, Field("str_replace: text that is in the file once")] | None = None,
        new_str: Annotated[str, Field("str_replace: text to put there; default: nothing")] | None = None,
        insert_line: Annotated[int, Field("insert: line to insert after; 0 is the top")] | None = None,
        insert_text: Annotated[str, Field("insert: lines to insert")] | None = None,
        old_path: Annotated[str, Field("rename: path of the file or folder")] | None = None,
        new_path: Annotated[str, Field("rename: its new path")] | None = None,
    ) -> MemoryToolText:
        """Keep notes in files below /memories that outlive this conversation. View /memories before you start."""
        given: dict[str, Any] = {
            "path": path,
            "view_range": view_range,
            "file_text": file_text,
            "old_str": old_str,
            "new_str": new_str,
            "insert_line": insert_line,
            "insert_text": insert_text,
            "old_path": old_path,
            "new_path": new_path,
        }
        for name in _NEEDED[command]:
            if given[name] is None:
                raise InvalidInput(f"`{command}` needs `{name}`.", hint="Call it again with it.", argument=name)
        if command == "str_replace":
            given["new_str"] = new_str or ""
        accepted = (*_NEEDED[command], "view_range" if command == "view" else "new_str")
        run: Callable[..., Awaitable[str]] = getattr(self._files, command)
        told = await run(call, **{name: given[name] for name in accepted if given[name] is not None})
        return MemoryToolText(told)
