"""What the progress and decision tools answer, as it stands on the wire."""

from dataclasses import dataclass
from typing import Annotated

from recollect.families.bank.text.sentences import with_warnings
from recollect.tools.schema import Field
from recollect.tools.tool import Warned


@dataclass(frozen=True, slots=True)
class Tracked:
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


@dataclass(frozen=True, slots=True)
class EntryAdded:
    success: bool
    entry_id: Annotated[str, Field(name="entryId")]
    type: str
    summary: str
    timestamp: str
    warnings: list[Warned] | None = None


@dataclass(frozen=True, slots=True)
class ContextUpdated:
    updated: list[str]
    warnings: list[Warned] | None = None

    @property
    def sentence(self) -> str:
        return with_warnings("Active context updated successfully", self.warnings)


@dataclass(frozen=True, slots=True)
class NoteAdded:
    success: bool
    message: str
    timestamp: str
    category: str
    warnings: list[Warned] | None = None


@dataclass(frozen=True, slots=True)
class TaskChanges:
    added: int
    removed: int
    replaced: bool


@dataclass(frozen=True, slots=True)
class TasksUpdated:
    """Of a very long list the first and the last tasks; `omitted` is how many are between."""

    success: bool
    message: str
    tasks: list[str]
    changes: TaskChanges
    omitted: int | None = None
    warnings: list[Warned] | None = None


@dataclass(frozen=True, slots=True)
class DecisionLogged:
    title: str
    timestamp: str
    files: list[str]
    warnings: list[Warned] | None = None

    @property
    def sentence(self) -> str:
        return with_warnings(f"Decision logged: {self.title}", self.warnings)
