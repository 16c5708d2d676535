"""The tables of one store, in both dialects of SurrealDB."""

VERSION = 1

META = "DEFINE TABLE IF NOT EXISTS meta SCHEMALESS"

_FIELDS = {
    "record": {
        "age": "int",
        "kind": "string",
        "type": "option<string>",
        "name": "option<string>",
        "name_key": "option<string>",
        "variant": "string",
        "text": "string",
        "parent": "option<record<record>>",
        "scope": "string",
        "session": "option<string>",
        "position": "option<int>",
        "place": "option<string>",
        "author": "option<string>",
        "importance": "option<float>",
        "occurred_at": "option<int>",
        "tags": "array<string>",
        "facets": "option<string>",
        "pinned": "bool",
        "automatic": "bool",
        "created_at": "int",
        "updated_at": "int",
        "deleted_at": "option<int>",
        "version": "int",
        "embedded": "option<string>",
    },
    "word": {
        "of": "record<record>",
        "age": "int",
        "kind": "string",
        "parent": "option<record<record>>",
        "name": "string",
        "text": "string",
        "context": "string",
    },
    "link": {
        "age": "int",
        "verb": "string",
        "edge": "string",
        "facets": "option<string>",
        "created_at": "int",
        "deleted_at": "option<int>",
    },
    "change": {
        "at": "int",
        "tool": "string",
        "client": "string",
        "undoes": "option<int>",
        "key": "option<string>",
    },
    "edit": {
        "operation": "string",
        "subject": "string",
        "item": "option<string>",
        "before": "option<string>",
    },
    "access": {"of": "record<record>", "count": "int", "last_at": "int"},
}
_KINDS = {"link": " TYPE RELATION IN record OUT record"}
# Neither `word` nor a table of vectors has any of these: with one on a column of a condition,
# version 2 gives too few of what the other index finds.
_INDEXED = {
    "record": ("age", "kind", "name_key", "parent", "session", "place", "embedded"),
    "link": ("edge",),
    "change": ("key",),
    "edit": ("item",),
}
WORDED = ("name", "text", "context")  # the columns of `word` that are found by words

_VECTOR_FIELDS = {
    "of": "record<record>",
    "age": "int",
    "kind": "string",
    "parent": "option<record<record>>",
    "embedding": "array<float>",
    "exact": "bytes",
}


def definitions(*, is_modern: bool) -> str:
    """All statements that make an empty store; harmless where it is made already."""
    searched = "FULLTEXT" if is_modern else "SEARCH"
    parts = [_table(name, fields, _KINDS.get(name, "")) for name, fields in _FIELDS.items()]
    parts += [
        f"DEFINE INDEX IF NOT EXISTS {table}_{field} ON {table} FIELDS {field}"
        for table, indexed in _INDEXED.items()
        for field in indexed
    ]
    # Words come prepared, with blanks between them: see wording.py.
    parts.append("DEFINE ANALYZER IF NOT EXISTS prepared TOKENIZERS blank")
    parts += [
        f"DEFINE INDEX IF NOT EXISTS word_{field} ON word FIELDS {field} "
        f"{searched} ANALYZER prepared BM25(1.2,0.75)"
        for field in WORDED
    ]
    parts.append(
        "INSERT IGNORE INTO meta {id: 'store', seq: 0, turn: 0, ages: 0, moves: 0, models: []}"
    )
    # Last: whoever finds a version finds all that belongs to it.
    parts.append(f"UPDATE meta:store SET schema = {VERSION}")
    return "; ".join(parts)


def vector_definitions(table: str, dimensions: int) -> str:
    """One model's vectors of one length."""
    return (
        f"{_table(table, _VECTOR_FIELDS)}; "
        f"DEFINE INDEX IF NOT EXISTS {table}_embedding ON {table} FIELDS embedding "
        f"HNSW DIMENSION {dimensions} DIST COSINE TYPE F32 EFC 150 M 12"
    )


def _table(name: str, fields: dict[str, str], kind: str = "") -> str:
    defined = (
        f"DEFINE FIELD IF NOT EXISTS {field} ON {name} TYPE {type_}"
        for field, type_ in fields.items()
    )
    return "; ".join([f"DEFINE TABLE IF NOT EXISTS {name}{kind} SCHEMAFULL", *defined])
