"""Databases as the surrealdb-memory plugin leaves them, embedded or on a server."""

import asyncio
from pathlib import Path

from everkept.engines.surreal.connection import Connection
from everkept.engines.surreal.drivers import LOCK_FILE, EmbeddedConnection

NAMESPACE, DATABASE = "memory", "default"
OLD = "d'2025-03-04T05:06:07Z'"
LATER = "d'2025-04-04T05:06:07Z'"
USED = "d'2025-05-04T05:06:07Z'"

_TABLES = """
DEFINE TABLE memory SCHEMALESS; DEFINE TABLE entity SCHEMALESS; DEFINE TABLE session SCHEMALESS;
DEFINE TABLE memory_entity TYPE RELATION IN memory OUT entity SCHEMALESS;
DEFINE TABLE relates_to TYPE RELATION IN entity OUT entity SCHEMALESS
"""
# As the embedded version has them; a newer server knows neither.
_INDEXES = """
DEFINE INDEX idx_memory_embedding ON memory FIELDS embedding MTREE DIMENSION 3 DIST COSINE;
DEFINE ANALYZER memory_analyzer TOKENIZERS blank, class FILTERS ascii, lowercase, snowball(english);
DEFINE INDEX idx_memory_content_ft ON memory FIELDS content SEARCH ANALYZER memory_analyzer BM25
"""
ROWS = (
    f"CREATE session:s1 SET project_path = '/work/shop', started_at = {OLD}, ended_at = {LATER}, summary = 'Chose tea'",
    f"CREATE entity:tea SET name = 'Tea Pot', type = 'component', metadata = {{ owner: 'Ada' }}, created_at = {OLD}",
    f"CREATE entity:cup SET name = 'Cup', type = 'component', created_at = {OLD}",
    "CREATE memory:01JNFACT SET content = 'The shop serves green tea', type = 'semantic', scope = 'project', "
    f"importance = 0.8, tags = ['decision', 'tea'], source = {{ tool: 'Edit', file: 'src/tea.py' }}, version = 3, "
    f"embedding = [1.0, 0.0, 0.0], access_count = 5, last_accessed = {USED}, metadata = {{ nested: {{ deep: 1 }} }}, "
    f"created_at = {OLD}, updated_at = {LATER}",
    "CREATE memory:01JNEVENT SET content = 'The kettle broke', type = 'episodic', scope = 'session', "
    f"session_id = 'session:s1', consolidated = true, created_at = {OLD}, updated_at = {OLD}",
    "CREATE memory:01JNUSER SET content = 'Prefers tabs', type = 'procedural', scope = 'user', "
    f"created_at = {OLD}, updated_at = {OLD}",
    "CREATE memory:01JNGONE SET content = 'The shop served coffee', type = 'semantic', scope = 'project', "
    f"forgotten = true, forgotten_at = {LATER}, forgotten_reason = 'Moved to tea', created_at = {OLD}, "
    f"updated_at = {LATER}",
    "CREATE memory:01JNSUM SET content = 'Tea matters here', type = 'semantic', scope = 'project', "
    f"derived_from = [memory:01JNEVENT], created_at = {LATER}, updated_at = {LATER}",
    f"CREATE memory:01JNKEY SET content = 'The key is sk-ant-api03-{'a' * 93}AA', type = 'semantic', "
    f"scope = 'project', created_at = {OLD}, updated_at = {OLD}",
    "CREATE memory:empty SET content = ' ', type = 'semantic', scope = 'project'",
    f"RELATE memory:01JNFACT->memory_entity->entity:tea SET relationship = 'uses', created_at = {OLD}",
    f"RELATE memory:01JNUSER->memory_entity->entity:cup SET relationship = 'likes', created_at = {OLD}",
    f"RELATE memory:01JNGONE->memory_entity->entity:cup SET relationship = 'used', created_at = {OLD}",
    f"RELATE entity:tea->relates_to->entity:cup SET relationship = 'pours_into', weight = 2.5, created_at = {OLD}",
)


async def fill(connection: Connection, *, indexes: bool = True) -> None:
    for statements in (_TABLES, *((_INDEXES,) if indexes else ())):
        await connection.run(DATABASE, statements)
    for statement in ROWS:
        await connection.run(DATABASE, statement)


def make_folder(folder: Path, *more: str) -> Path:
    """Write a folder of the plugin, which has no file of ours."""

    async def write() -> None:
        connection = EmbeddedConnection(folder, NAMESPACE)
        await fill(connection)
        for statement in more:
            await connection.run(DATABASE, statement)
        await connection.close()

    asyncio.run(write())
    (folder / LOCK_FILE).unlink()
    return folder


async def change_folder(folder: Path, *rows: str) -> None:
    """Go on writing, as the plugin does."""
    connection = EmbeddedConnection(folder, NAMESPACE)
    for statement in rows:
        await connection.run(DATABASE, statement)
    await connection.close()
    (folder / LOCK_FILE).unlink()


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
