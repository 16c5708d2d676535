"""What a store in files holds once they are opened again: what it held before."""

from pathlib import Path
from typing import Any

import numpy as np

from everkept.core.answers import AccessCount, CatalogData, StorePage
from everkept.core.ports import RecordStore, RecordVector, Token
from everkept.core.projects import Project
from everkept.core.records import Delete, RecordFilter, Ref, Update, Weights
from everkept.engines.surreal.drivers import EmbeddedConnection
from everkept.engines.surreal.library import SurrealLibrary
from everkept.language.words import parse_query
from records import DAY_ONE, batch, entity, link, memory, note
from surreal_server import fresh_namespace, served

MODEL = "test"
WORDS = ("tea", "coffee", "milk", "Ada", "Grace", "same", "later", "restocked")
NUMBER = 8


def library_in(folder: Path) -> SurrealLibrary:
    connection = EmbeddedConnection(folder, "memory")
    return SurrealLibrary(connection, mode="embedded-file", place=str(folder))


def vector(number: int) -> Any:
    return np.eye(NUMBER, dtype=np.float32)[number]


async def fill(store: RecordStore) -> None:
    """Several of each thing in one transaction, and then changes of several at once."""
    texts = [f"{word} same {number}" for number, word in enumerate(WORDS[:3])]
    people = [entity("Ada"), entity("Grace"), note("Ada", "likes milk"), note("Grace", "later")]
    await store.commit(batch(*map(memory, texts), *people, link("Ada", "knows", "Grace")))
    await store.put_vectors(MODEL, [RecordVector(text, 1, vector(number)) for number, text in enumerate(texts)])
    await store.note_accesses(dict.fromkeys(texts, 2), DAY_ONE)
    changes = [Update(text, {"text": f"{text} later"}, 1) for text in texts[1:]]
    await store.commit(batch(*changes, Update("Ada", {"name": "Ada L"}, 1), Delete(_ref("Grace"))))
    more = [memory(f"restocked {number}") for number in range(3)]
    await store.replicate(
        StorePage(
            records=more,
            accesses={record.id: AccessCount(5, DAY_ONE) for record in more},
            vectors={MODEL: [RecordVector(r.id, 1, vector(3 + n)) for n, r in enumerate(more)]},
        )
    )
    await store.replicate(StorePage(records=[memory(f"{r.text} later", id=r.id) for r in more]))


def _ref(record_id: str) -> Ref:
    return Ref("record", record_id)


async def told(store: RecordStore) -> dict[str, Any]:
    """All that can be read of it, as search sees it too."""
    records = await store.scan(RecordFilter(deleted=None))
    ids = [record.id for record in records]
    vectors = await store.get_vectors(MODEL, ids)
    near = [await store.find_near(MODEL, vector(number), RecordFilter(), 10) for number in range(NUMBER)]
    return {
        "records": records,
        "links": await store.scan_links(deleted=None),
        "changes": await store.read_changes(limit=100),
        "accesses": dict(await store.get_accesses(ids)),
        "vectors": sorted(vectors),
        "counts": await store.count_vectors(MODEL, ("memory",)),
        "words": {word: await _matched(store, word) for word in WORDS},
        "near": [[(match.id, round(match.score, 4)) for match in found] for found in near],
        "faults": await store.find_faults(),
    }


async def _matched(store: RecordStore, word: str) -> list[str]:
    words = parse_query(word).build_any_query()
    assert words is not None
    return [match.id for match in await store.match(words, RecordFilter(), Weights(), 100)]


async def test_all_of_it_is_found_when_the_files_are_opened_again(tmp_path: Path) -> None:
    library = library_in(tmp_path)
    await library.create("shop", "")
    _, store = await library.open("shop")
    await fill(store)
    before = await told(store)
    assert len(before["words"]["same"]) == 3
    assert all(before["words"][word] for word in WORDS if word != "Grace")
    await library.close()
    again = library_in(tmp_path)
    _, reopened = await again.open("shop")
    assert await told(reopened) == before
    await reopened.commit(batch(memory("tea same again")))
    assert len((await told(reopened))["words"]["same"]) == 4
    await again.close()


async def test_what_a_library_took_over_is_so_when_the_files_are_opened_again(tmp_path: Path) -> None:
    library = library_in(tmp_path)
    ids = [(await library.create(name, "")).id for name in ("one", "two")]
    # Their names are traded.
    projects = [
        Project(project_id, name, "told anew", "active", DAY_ONE, DAY_ONE)
        for project_id, name in zip(reversed(ids), ("one", "two"), strict=True)
    ]
    wanted = CatalogData(
        projects=projects,
        workspaces={"/work/one": ids[0], "/work/two": ids[1]},
        notes={"a": "1", "b": "2"},
        tokens=[(Token(f"t{n}", "laptop", DAY_ONE + n), f"hash {n}") for n in range(2)],
    )
    for _ in range(2):
        await library.replace_catalog_data(wanted)
        assert await library.read_catalog_data() == wanted
        await library.close()
        library = library_in(tmp_path)
        assert await library.read_catalog_data() == wanted
    await library.close()


async def test_a_server_that_is_started_again_has_it_too(tmp_path: Path) -> None:
    for core in (2, 3):
        namespace = fresh_namespace()
        async with served(core, tmp_path / f"core{core}") as server:
            connection = server.connection(namespace)
            library = SurrealLibrary(connection, mode="local-server", place=server.url)
            store = await library.open_user_store()
            await fill(store)
            before = await told(store)
            await library.close()
            await server.restart()
            connection = server.connection(namespace)
            library = SurrealLibrary(connection, mode="local-server", place=server.url)
            assert await told(await library.open_user_store()) == before
            await library.close()


async def test_the_files_of_a_folder_are_counted_once_with_the_users_store(tmp_path: Path) -> None:
    library = library_in(tmp_path / "db")
    await library.create("shop", "")
    _, project = await library.open("shop")
    await fill(project)
    files = sum(path.stat().st_size for path in (tmp_path / "db").rglob("*") if path.is_file())
    assert 0 < await (await library.open_user_store()).measure_size() <= files + 100_000
    assert await project.measure_size() == await (await library.open_history_store()).measure_size() == 0
    await library.close()
