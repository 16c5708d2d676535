"""The tables and indexes of words and vectors."""

# One index for all stores: each record has a lexeme that names its store. What is new stands in
# the index itself, and not in a list that every question would have to read.
_WORDS = "CREATE INDEX records_words ON records USING gin (words) WITH (fastupdate = off)"

# What stands in names alone, and the store: of so many records that fit that not all are ranked,
# those are found by it whose name fits. Questions have to say NAMED for it to be used.
NAMED = "(r.name IS NOT NULL AND ts_filter(r.words, '{a,d}') @@ %s::tsquery)"
_NAMED = (
    "CREATE INDEX records_named ON records USING gin (ts_filter(words, '{a,d}')) "
    "WITH (fastupdate = off) WHERE name IS NOT NULL"
)

# Whose vector is of which model; those without one wait for it, the newest first. Questions have
# to say the same for this index to be used.
EMBEDDABLE = "(r.deleted_at IS NULL AND (r.text <> '' OR r.embedded IS NOT NULL))"
_EMBEDDED = (
    "CREATE INDEX records_embedded ON records (store, kind, embedded, age) "
    f"WHERE {EMBEDDABLE.replace('r.', '')}"
)

# Halves: no cosine changes by more than 0.001, and twice as many fit into memory. A column without
# a length takes the vectors of any model; `dims` says which can be compared. They stand in the rows
# themselves if they fit: who compares many would have to fetch each.
_VECTORS = """
CREATE TABLE vectors (
    store integer NOT NULL REFERENCES stores(number) ON DELETE CASCADE,
    model text COLLATE "C" NOT NULL,
    dims integer NOT NULL,
    record text COLLATE "C" NOT NULL,
    v halfvec NOT NULL,
    PRIMARY KEY (store, model, record))
    WITH (toast_tuple_target = 8160)
"""
_OF_RECORD = "CREATE INDEX vectors_record ON vectors (store, record)"

STATEMENTS: tuple[str, ...] = (_WORDS, _NAMED, _EMBEDDED, _VECTORS, _OF_RECORD)
