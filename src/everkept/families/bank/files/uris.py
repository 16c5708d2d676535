"""The addresses of a bank's documents: memory-bank://progress.md, and without the ending."""

from urllib.parse import quote, unquote

from everkept.errors import InvalidInput, Refused
from everkept.families.bank.files.names import ENDINGS, checked_name

SCHEME = "memory-bank://"
GRAPH_VIEW = "graph/graph.md"  # the one document that is no file at the bank's root


def uri_of(path: str) -> str:
    return SCHEME + quote(path, safe="/")


def path_in(uri: str) -> str:
    """The path of the document inside its bank. InvalidInput where there can be none."""
    try:
        path = unquote(uri.removeprefix(SCHEME), errors="strict").removesuffix("/")
        if path == GRAPH_VIEW:
            return path
        return checked_name(path if path.lower().endswith(ENDINGS) else f"{path}.md")
    except (UnicodeDecodeError, Refused) as error:
        raise InvalidInput(
            f"Invalid URI format: {ascii(uri)[1:-1]}.",
            hint="A document's address is memory-bank:// and the name of a file of the bank.",
            uri=ascii(uri)[1:-1],
        ) from error
