"""Which files that an assistant edits are worth a memory."""

from pathlib import PurePosixPath

LONGEST_NAME = 500  # characters of a path

_LOCKS = frozenset(
    {
        "cargo.lock",
        "composer.lock",
        "flake.lock",
        "gemfile.lock",
        "go.sum",
        "npm-shrinkwrap.json",
        "package-lock.json",
        "pnpm-lock.yaml",
        "poetry.lock",
        "uv.lock",
        "yarn.lock",
    }
)
# Folders of what programs write.
_OUTPUT = frozenset(
    {
        "__pycache__",
        "bower_components",
        "build",
        "coverage",
        "dist",
        "generated",
        "htmlcov",
        "node_modules",
        "out",
        "scratchpad",
        "site-packages",
        "target",
        "temp",
        "tmp",
        "venv",
    }
)
_HIDDEN_BUT_WRITTEN = frozenset(
    {".github", ".gitlab", ".circleci", ".claude", ".vscode", ".cursor"}
)
_ENDINGS = (
    "~",
    ".bak",
    ".g.dart",
    ".lock",
    ".log",
    ".map",
    ".min.css",
    ".min.js",
    ".orig",
    ".out",
    ".pb.go",
    ".pyc",
    ".snap",
    ".swp",
    ".tmp",
    "_pb2.py",
    "_pb2_grpc.py",
)


def is_worth_a_memory(file: PurePosixPath) -> bool:
    """Not lock files, nor what is built, generated, temporary or hidden; the path is relative."""
    *folders, name = (part.lower() for part in file.parts)
    return not (
        len(str(file)) > LONGEST_NAME
        or not str(file).isprintable()
        or name in _LOCKS
        or name.endswith(_ENDINGS)
        or ".generated." in name
        or any(folder in _OUTPUT or _is_hidden(folder) for folder in folders)
    )


def _is_hidden(folder: str) -> bool:
    return folder.startswith(".") and folder not in _HIDDEN_BUT_WRITTEN
