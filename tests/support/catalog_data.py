"""Data of a catalog with something of everything, and projects with a record each."""

from everkept.core.answers import CatalogData
from everkept.core.ports import Library, Token
from everkept.core.projects import OffHistory, Project
from everkept.core.records import RecordFilter
from everkept.values import replace
from records import DAY_ONE, batch, entity


def project(name: str, **more: object) -> Project:
    made = Project(f"id of {name}", name, f"About {name}.", "active", DAY_ONE, DAY_ONE + 1)
    return replace(made, **more)  # type: ignore[arg-type]


def everything() -> CatalogData:
    off = OffHistory(((1, 2), (5, None)))
    gone = OffHistory(((3, 4),), ("/work/gone", "/work/läden"), 9)
    return CatalogData(
        projects=[project("archived", status="archived"), project("shop", off_since=5)],
        workspaces={"/work/shop": "id of shop", "/work/日本": "id of archived"},
        switching={"id of shop": off, "id of gone": gone},
        notes={"default": "shop", "empty": "", "größe 100%": "`'\"\\"},
        tokens=[(Token("2", "phone", 10), "hash b"), (Token("1", "laptop", 20), "hash a")],
    )


async def put_something_in(library: Library, name: str) -> None:
    _, store = await library.open(name)
    await store.commit(batch(entity(f"in {name}")))


async def found_in(library: Library, name: str) -> list[str]:
    _, store = await library.open(name)
    return [record.id for record in await store.scan(RecordFilter())]
