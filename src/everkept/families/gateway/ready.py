"""Ready-made files of a gateway, for servers that many people use."""

from importlib.resources import files
from importlib.resources.abc import Traversable

from everkept.errors import NotFound

_ENDING = ".json"


def names() -> list[str]:
    """What they are called, in order."""
    found = (file.name for file in _folder().iterdir())
    return sorted(name.removesuffix(_ENDING) for name in found if name.endswith(_ENDING))


def text(name: str) -> str:
    """The file of that name, comments and all. NotFound where there is none."""
    if name not in (known := names()):
        raise NotFound("ready-made file", name, hint=f"There are {', '.join(known)}.")
    return (_folder() / f"{name}{_ENDING}").read_text(encoding="utf-8")


def _folder() -> Traversable:
    return files("everkept.families.gateway") / "ready"
