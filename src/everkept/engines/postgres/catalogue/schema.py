"""The tables of a library: its stores, projects, folders, notes, tokens and logs.

Paths and the keys of notes may be longer than an index takes: their digests are the keys.
"""

STATEMENTS: tuple[str, ...] = (
    """
    CREATE TABLE stores (
        number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        -- None once its project is deleted, as long as there are rows of it.
        name text COLLATE "C" UNIQUE,
        title text NOT NULL DEFAULT '',
        is_closed boolean NOT NULL DEFAULT false,
        seq bigint NOT NULL DEFAULT 0,
        moves bigint NOT NULL DEFAULT 0,
        ages bigint NOT NULL DEFAULT 0
    )
    """,
    # From the beginning, so that no project can have taken their names.
    "INSERT INTO stores(name, title) VALUES ('user', 'user'), ('history', 'history')",
    """
    CREATE TABLE projects (
        id text COLLATE "C" PRIMARY KEY,
        -- Deferrable, for projects may trade their names in one statement.
        name text COLLATE "C" NOT NULL CONSTRAINT projects_name UNIQUE DEFERRABLE,
        description text NOT NULL,
        status text NOT NULL,
        created_at bigint NOT NULL,
        updated_at bigint NOT NULL,
        off_since bigint,
        store integer NOT NULL UNIQUE REFERENCES stores ON DELETE CASCADE
    )
    """,
    """
    CREATE TABLE workspaces (
        key text COLLATE "C" PRIMARY KEY,
        path text COLLATE "C" NOT NULL,
        project text COLLATE "C" NOT NULL REFERENCES projects ON DELETE CASCADE
    )
    """,
    "CREATE INDEX workspaces_project ON workspaces(project)",
    # Outlasts its project. An end that is NULL has not come yet.
    """
    CREATE TABLE switching (
        project text COLLATE "C" PRIMARY KEY,
        since bigint[] NOT NULL,
        until bigint[] NOT NULL,
        folders text[] NOT NULL,
        deleted_at bigint
    )
    """,
    """
    CREATE TABLE notes (
        digest text COLLATE "C" PRIMARY KEY,
        key text COLLATE "C" NOT NULL,
        value text NOT NULL
    )
    """,
    'CREATE INDEX notes_key ON notes(("left"(key, 200)))',
    """
    CREATE TABLE tokens (
        id text COLLATE "C" PRIMARY KEY,
        label text NOT NULL,
        secret_hash text COLLATE "C" NOT NULL UNIQUE,
        created_at bigint NOT NULL
    )
    """,
    """
    CREATE TABLE searches (
        seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        at bigint NOT NULL,
        tool text NOT NULL,
        query text NOT NULL,
        results bigint NOT NULL,
        milliseconds double precision NOT NULL,
        session text,
        filters text NOT NULL
    )
    """,
    """
    CREATE TABLE usage (
        digest text COLLATE "C" PRIMARY KEY,
        tool text NOT NULL,
        calls bigint NOT NULL,
        errors bigint NOT NULL,
        total_ms double precision NOT NULL,
        longest_ms double precision NOT NULL,
        last_at bigint NOT NULL
    )
    """,
)
