"""What the progress and decision tools answer, as it stands on the wire."""

from typing import Annotated

from everkept.families.bank.text.sentences import with_warnings
from everkept.tools.schema import Field
from everkept.tools.tool import Warned
from everkept.values import Value


class Tracked(Value):
    entry: str
    timestamp: str
    files: list[str]
    warnings: list[Warned] | None = None

    @property
    def sentence(self) -> str:
        return with_warnings(
            "Progress tracked successfully. Updated progress.md with entry: "
            + self.entry.removeprefix("- "),
            self.warnings,
        )


class EntryAdded(Value):
    success: bool
    entry_id: Annotated[str, Field(name="entryId")]
    type: str
    summary: str
    timestamp: str
    warnings: list[Warned] | None = None


class ContextUpdated(Value):
    updated: list[str]
    warnings: list[Warned] | None = None

    @property
    def sentence(self) -> str:
        return with_warnings("Active context updated successfully", self.warnings)


class NoteAdded(Value):
    success: bool
    message: str
    timestamp: str
    category: str
    warnings: list[Warned] | None = None


class TaskChanges(Value):
    added: int
    removed: int
    replaced: bool


class TasksUpdated(Value):
    """Of a very long list the first and the last tasks; `omitted` is how many are between."""

    success: bool
    message: str
    tasks: list[str]
    changes: TaskChanges
    omitted: int | None = None
    warnings: list[Warned] | None = None


class DecisionLogged(Value):
    title: str
    timestamp: str
    files: list[str]
    warnings: list[Warned] | None = None

    @property
    def sentence(self) -> str:
        return with_warnings(f"Decision logged: {self.title}", self.warnings)
