"""Questions that a library answers beside the records of its projects, and changes of them."""

from collections.abc import Mapping, Sequence

from everkept.core.projects import Project, Silence, Status
from everkept.core.questions import A_co, Answered
from everkept.core.search_ports import Search
from everkept.core.store_values import Holdings, Token
from everkept.core.upstreams import Usage


class CatalogQuestion(Answered[A_co]):
    """Something that a library can be asked, and which changes nothing."""


class CatalogChange(Answered[A_co]):
    """A write to a library beside the records of its projects."""


class ListProjects(CatalogQuestion[list[Project]]):
    """All projects, or the ones with a status, by name."""

    status: Status | None = None


class GetProject(CatalogQuestion[Project]):
    """The project of this name. Raises NotFound."""

    name: str


class ListSilences(CatalogQuestion[list[Silence]]):
    """When the projects of folders were turned off, also the ones that still are."""


class FindWorkspaceProject(CatalogQuestion[Project | None]):
    """The project that the workspace is linked to."""

    path: str


class ListWorkspaces(CatalogQuestion[list[str]]):
    """The workspaces that are linked to the project."""

    project: Project


class GetNote(CatalogQuestion[str | None]):
    """A small setting that the program stores for itself."""

    key: str


class ListNotes(CatalogQuestion[Mapping[str, str]]):
    """All notes whose key begins with the prefix."""

    prefix: str


class ListSearches(CatalogQuestion[list[Search]]):
    """The newest searches first, of all sessions or of one."""

    session: str | None = None
    limit: int = 100


class ListUsage(CatalogQuestion[list[Usage]]):
    """One sum for each tool that was called, the most called first and then by name."""


class ListTokens(CatalogQuestion[list[Token]]):
    """All tokens by age."""


class HasToken(CatalogQuestion[bool]):
    """Whether a token has this secret."""

    secret_hash: str


class ReadHoldings(CatalogQuestion[Holdings]):
    """Everything that the library has beside the records."""


class AddProject(CatalogChange[Project]):
    """Create a project. Raises Conflict if a project has the name or the id, also an archived one.

    `at` is the time of creation, if it was created before now.
    """

    name: str
    description: str
    project_id: str = ""
    at: int | None = None


class SetProjectStatus(CatalogChange[Project]):
    """Archive or restore a project. Raises Conflict if it has the status already."""

    name: str
    status: Status


class DeleteProject(CatalogChange[None]):
    """Delete a project permanently."""

    name: str


class SetProjectOff(CatalogChange[Project]):
    """Turn a project off or on; nothing changes if it is so already.

    `at` is the time when it was turned off or on, if that was before now.
    """

    name: str
    off: bool
    at: int | None = None


class LinkWorkspace(CatalogChange[Project]):
    """Link the workspace to the project, unless it has one; the answer is the linked project."""

    path: str
    project: Project


class WriteNote(CatalogChange[None]):
    """Store a note; None deletes it."""

    key: str
    value: str | None


class AddSearches(CatalogChange[None]):
    """Store searches; the oldest go when there are too many."""

    searches: Sequence[Search]


class ForgetSearches(CatalogChange[int]):
    """Delete all searches; the answer is their number."""


class AddUsage(CatalogChange[None]):
    """Add to the stored sums, all rows or none, while other processes add to them too."""

    rows: Sequence[Usage]


class RegisterToken(CatalogChange[None]):
    """Store a token. Raises Conflict if its id or secret is stored already."""

    token: Token
    secret_hash: str


class RevokeToken(CatalogChange[bool]):
    """Delete a token; the answer is whether it existed."""

    token_id: str


class ReplaceHoldings(CatalogChange[None]):
    """Make everything beside the records equal to these holdings, and discard the rest.

    Projects that stay keep their records; new ones have none yet.
    """

    holdings: Holdings
