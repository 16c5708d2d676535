"""The bank that a call means, and the names and URIs that its files may have."""

import json
import posixpath
import re
import unicodedata
from collections.abc import Collection, Iterable
from pathlib import PurePath
from typing import Any, Literal, Protocol, cast
from urllib.parse import quote, unquote

from everkept.core.files import FileStore, FileStores, parse_path
from everkept.core.ports import Library, RecordStore
from everkept.core.sessions import ToolCall
from everkept.core.text import clip_text
from everkept.errors import NO_FOLDER, BankNotFound, InvalidInput, NotFound, Refused, escape_name
from everkept.families.bank.model import LEGACY_NAMES, BankOptions
from everkept.values import Value

FILE_SUFFIXES = (".md", ".json")
_CAMEL_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[^\W\d_]+")
# Format characters, which nobody sees, and others that no font shows the same way.
_INVISIBLE_CATEGORIES = frozenset({"Cf", "Cc", "Cs", "Co", "Cn", "Zl", "Zp"})
# Scripts with letters that look like each other's.
_CONFUSABLE_SCRIPTS = frozenset({"LATIN", "CYRILLIC", "GREEK"})

# A disk that knows no case has them in any.
_CURRENT_BY_OLD_NAME = {old.lower(): today for today, old in LEGACY_NAMES.items()}


def check_name(name: str) -> str:
    """Gives the name back; Refused for one that is no file at the root of a bank."""
    parts = parse_path(name)
    if len(parts) != 1 or not name.lower().endswith(FILE_SUFFIXES) or name.startswith("."):
        shown = escape_name(clip_text(name, 120))
        raise Refused(
            f'"{shown}" is no name of a bank\'s file.',
            hint="Files lie at the root of the bank and end in .md or .json.",
            name=shown,
        )
    return name


def check_new_name(name: str) -> str:
    """Refused also for one that looks like another; what is there under such a name can be read."""
    check_name(name)
    if reason := _find_deception(unicodedata.normalize("NFC", name)):
        shown = ascii(clip_text(name, 120))[1:-1]
        raise Refused(
            f'"{shown}" is no name for a new file: {reason}.', hint="Use letters, digits, '-', '_' and '.'.", name=shown
        )
    return name


def is_outside_bank(target: str | None) -> bool:
    """Return whether a link leads to what is not a file at the root of the bank."""
    if target is None:
        return False
    try:
        check_name(target)
    except Refused:
        return True
    return False


def normalize_name(name: str) -> str:
    """The form in which new files are written: activeContext.md becomes active-context.md."""
    plain = unicodedata.normalize("NFC", name)
    lower = plain.lower()
    if known := _CURRENT_BY_OLD_NAME.get(lower):
        return known
    return plain if plain == lower else _CAMEL_BOUNDARY.sub("-", plain).lower()


def list_candidates(name: str) -> tuple[str, ...]:
    """Where to look for a file, the first that is there is it.

    Of a core file's two names the one of today wins; other files are what they are called.
    """
    today = normalize_name(name)
    if today in LEGACY_NAMES:
        return tuple(dict.fromkeys((today, LEGACY_NAMES[today])))
    forms = (name, *(unicodedata.normalize(form, name) for form in ("NFC", "NFD")), today)
    return tuple(dict.fromkeys(forms))


def find_matching(names: Iterable[str], name: str) -> str | None:
    """The name among those of a folder that means this file, in whatever spelling."""
    there = set(names)
    if found := next((form for form in list_candidates(name) if form in there), None):
        return found
    alike = _find_alike(there, name)
    if len(alike) > 1:
        shown = " or ".join(map(escape_name, alike))
        raise InvalidInput(f'"{escape_name(name)}" may be {shown}.', hint="Give the name exactly.", filenames=alike)
    return alike[0] if alike else None


def find_present(names: Collection[str], wanted: Iterable[str]) -> list[str]:
    """Return those of the wanted names that a folder has, in whatever spelling."""
    there = set(names)
    found = {name: any(form in there for form in list_candidates(name)) for name in wanted}
    if not all(found.values()):  # only then is every name of the folder looked at
        folded, written = set(map(_fold_name, there)), set(map(normalize_name, there))
        for name in found:
            found[name] |= _fold_name(name) in folded or normalize_name(name) in written
    return [name for name, is_present in found.items() if is_present]


def find_repeated(names: Iterable[str]) -> tuple[str, str] | None:
    """Two of the names that mean one file."""
    seen: dict[str, str] = {}
    for name in names:
        keys = {f"folded {_fold_name(name)}", f"written {normalize_name(name)}"}
        if known := next((seen[key] for key in keys if key in seen), None):
            return known, name
        seen |= dict.fromkeys(keys, name)
    return None


def _find_alike(names: Iterable[str], name: str) -> list[str]:
    """What differs in case alone; where there is nothing, what would be written the same."""
    folded, written = _fold_name(name), normalize_name(name)
    found = [other for other in names if _fold_name(other) == folded]
    return sorted(found or (other for other in names if normalize_name(other) == written))


def _fold_name(name: str) -> str:
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _find_deception(name: str) -> str | None:
    for character in name:
        kind = unicodedata.category(character)
        if kind in _INVISIBLE_CATEGORIES or (kind == "Zs" and character != " "):
            return f"it holds the character U+{ord(character):04X}, which cannot be seen"
    if unicodedata.normalize("NFKC", name) != name:
        return "it holds characters that look like plain ones"
    if any(len(_list_scripts(word.group())) > 1 for word in _WORD.finditer(name)):
        return "a word of it mixes alphabets that look alike"
    return None


def _list_scripts(word: str) -> set[str]:
    return {unicodedata.name(letter, "?").split()[0] for letter in word} & _CONFUSABLE_SCRIPTS


URI_SCHEME = "memory-bank://"
GRAPH_VIEW = "graph/graph.md"  # the one document that is no file at the bank's root


def build_uri(path: str) -> str:
    return URI_SCHEME + quote(path, safe="/")


def parse_uri(uri: str) -> str:
    """The path of the document inside its bank. InvalidInput where there can be none."""
    try:
        path = unquote(uri.removeprefix(URI_SCHEME), errors="strict").removesuffix("/")
        if path == GRAPH_VIEW:
            return path
        return check_name(path if path.lower().endswith(FILE_SUFFIXES) else f"{path}.md")
    except (UnicodeDecodeError, Refused) as error:
        raise InvalidInput(
            f"Invalid URI format: {ascii(uri)[1:-1]}.",
            hint="A document's address is memory-bank:// and the name of a file of the bank.",
            uri=ascii(uri)[1:-1],
        ) from error


StoreKind = Literal["local", "remote"]
_NOTE_PREFIX = "bank store "


class StoreRegistration(Value):
    store_id: str
    path: str  # of the folder around the bank, or of the bank itself
    kind: StoreKind
    registered_at: int
    last_used_at: int


class StoreRegistry:
    """One note for each store, so that two who register at once do not undo each other."""

    def __init__(self, library: Library) -> None:
        self._library = library

    async def list_stores(self) -> list[StoreRegistration]:
        """In the order they were registered."""
        notes = await self._library.list_notes(_NOTE_PREFIX)
        found = [_parse_registration(key.removeprefix(_NOTE_PREFIX), value) for key, value in notes.items()]
        return sorted(found, key=lambda store: (store.registered_at, store.store_id))

    async def get(self, store_id: str) -> StoreRegistration:
        value = await self._library.get_note(_NOTE_PREFIX + store_id)
        if value is None:
            raise NotFound(
                "store",
                store_id,
                message=f'Store "{store_id}" not found in registry.',
                hint="list_stores shows what there is; register_store adds one.",
            )
        return _parse_registration(store_id, value)

    async def put(self, store: StoreRegistration) -> None:
        value = {
            "path": store.path,
            "kind": store.kind,
            "registered_at": store.registered_at,
            "last_used_at": store.last_used_at,
        }
        await self._library.set_note(_NOTE_PREFIX + store.store_id, json.dumps(value, ensure_ascii=False))

    async def remove(self, store_id: str) -> bool:
        """False where there was none."""
        if await self._library.get_note(_NOTE_PREFIX + store_id) is None:
            return False
        await self._library.set_note(_NOTE_PREFIX + store_id, None)
        return True


def _parse_registration(store_id: str, value: str) -> StoreRegistration:
    return StoreRegistration(store_id, **cast(dict[str, Any], json.loads(value)))


SSH_SCHEME = "ssh://"
# A folder with one of these is a bank; a progress.md alone may lie in any project.
BANK_MARKER_FILES = (*LEGACY_NAMES, *LEGACY_NAMES.values())
STATELESS_HINT = "This connection keeps no state: register the store and pass `storeId` with each call."


class Bank(Value):
    """One bank: its own folder, and the folder of the project around it."""

    files: FileStore
    home: FileStore

    @property
    def address(self) -> str:
        return self.files.address

    @property
    def folder(self) -> str:
        return get_last_part(self.files.address)


class BankRecords(Protocol):
    """The records of the project that a bank belongs to: its graph, and the index of its files."""

    async def find_project_id(self, bank: Bank) -> str | None:
        """None where it is yet to be made."""
        ...

    async def open_to_read(self, bank: Bank) -> RecordStore:
        """A project that is yet to be made reads as an empty one."""
        ...

    async def open_to_write(self, bank: Bank) -> RecordStore: ...


class Banks:
    """The call's store, then the one that the session chose, then the one of the start."""

    def __init__(self, files: FileStores, registry: StoreRegistry, options: BankOptions) -> None:
        self._files = files
        self.registry = registry
        self.options = options

    async def require_bank(self, call: ToolCall, store_id: str | None = None) -> Bank:
        """Raises BankNotFound."""
        place = self.options.place
        if store_id is None and call.session.bank is None and place is not None:
            # Where nearly every call finds its bank, without looking at other places.
            bank = await self.open_at(self._join_folder(place))
            if await _is_inside(bank):
                return bank
        bank = await self.find_bank(call, store_id)
        if bank is None:
            raise BankNotFound(NO_FOLDER)
        if not await exists(bank):
            raise BankNotFound(bank.address)
        return bank

    def _join_folder(self, address: str) -> str:
        return f"{address.rstrip('/')}/{self.options.folder}"

    async def find_bank(self, call: ToolCall, store_id: str | None = None) -> Bank | None:
        """It need not exist yet; None where no folder was ever named."""
        if store_id is not None:
            return await self.open_in_folder((await self.registry.get(store_id)).path)
        if call.session.bank is not None:
            return await self.open_at(call.session.bank)
        if self.options.place is None:
            return None
        return await self.open_in_folder(self.options.place)

    async def open_in_folder(self, address: str) -> Bank:
        """The bank of a project's folder; what is a bank itself counts as one."""
        inner = await self.open_at(self._join_folder(address))
        if await _is_inside(inner):
            return inner
        itself = get_last_part(address) == self.options.folder or await self._is_bank(address)
        return await self.open_at(address) if itself else inner

    async def open_at(self, address: str) -> Bank:
        return Bank(await self._files.open_folder(address), await self._files.open_folder(get_parent(address)))

    async def check_allowed(self, address: str) -> None:
        """Refused for a folder that a caller may not name: whoever calls from another machine
        gets no more of this one, and of its keys, than somebody here has named."""
        if self.options.free_paths:
            return
        place = self.options.place
        stores = [store.path for store in await self.registry.list_stores()]
        named = [*stores, *([] if place is None else [place])]
        known = {await self._read_identity(each) for each in named}
        known |= {await self._read_identity(self._join_folder(each)) for each in named}
        if await self._read_identity(address) not in known:
            raise Refused(
                f"{address} is no memory bank that was named on this machine.",
                hint="On the machine: everkept register-store ID PATH. Then pass it as storeId.",
                argument="path",
            )

    async def _read_identity(self, address: str) -> str:
        """Equal for two ways to one folder of this machine; others are not asked."""
        if _is_ssh(address):
            return address.rstrip("/")
        return (await self._files.open_folder(address)).address

    def select(self, call: ToolCall, bank: Bank) -> str | None:
        """From now on the session means this bank; says so where it cannot be remembered."""
        if not call.session.stateful:
            return STATELESS_HINT
        call.session.bank = bank.address
        return None

    async def _is_bank(self, address: str) -> bool:
        files = await self._files.open_folder(address)
        for name in BANK_MARKER_FILES:
            if await files.read_info(name) is not None:
                return True
        return False


async def exists(bank: Bank) -> bool:
    found = await bank.files.read_info()
    return found is not None and found.is_folder


async def _is_inside(bank: Bank) -> bool:
    """Whether the folder of a project has this bank; Refused where it is a link that leads out.

    Somebody else's repository must not make of any folder a bank. Who means the other folder
    names it.
    """
    found = await bank.home.read_info(bank.folder)
    return found is not None and found.is_folder


def get_last_part(address: str) -> str:
    return address.rstrip("/").rpartition("/")[2] if _is_ssh(address) else PurePath(address).name


def get_parent(address: str) -> str:
    if not _is_ssh(address):
        return str(PurePath(address).parent)
    host, _, path = address.removeprefix(SSH_SCHEME).partition("/")
    return f"{SSH_SCHEME}{host}/{path.rstrip('/').rpartition('/')[0]}"


def _is_ssh(address: str) -> bool:
    return address.startswith(SSH_SCHEME)


async def resolve_allowed(banks: Banks, path: str) -> str:
    """The address of a folder that a caller may use; Refused for others."""
    address = resolve_address(path, banks.options.place)
    await banks.check_allowed(address)
    return address


def resolve_address(path: str, place: str | None) -> str:
    """The address of a folder; relative paths begin at `place`, the folder of the start.

    Where that is on another machine, so is every path that names none itself.
    """
    if "://" in path:
        return _check_address(path)
    if place is not None and place.startswith(SSH_SCHEME):
        return _resolve_remote(path, place)
    if path.startswith("~") or PurePath(path).is_absolute():
        return path
    if place is None:
        raise InvalidInput(
            f'"{path}" is relative, and no folder was chosen at the start.',
            hint="Give an absolute path.",
            argument="path",
            value=path,
        )
    return str(_collapse_dots(PurePath(place) / path))


def _check_address(path: str) -> str:
    """As it was given: once the bank's folder is joined to it, nobody knows it again.

    What an address with an `@` lacks is told by who opens it, without what may be a password.
    """
    scheme, _, rest = path.partition("://")
    if scheme.lower() != "ssh":
        raise _build_address_error(f'"{scheme}://…" is no address that is known here.')
    authority = rest.partition("/")[0]
    if "@" not in authority:
        raise _build_address_error(f'"{path}" names no {"user" if authority else "machine"}.')
    return SSH_SCHEME + rest


def _build_address_error(message: str) -> InvalidInput:
    hint = "Give a path, or an address as in ssh://me@example.com/home/me/project."
    return InvalidInput(message, hint=hint, argument="path")


def _resolve_remote(path: str, place: str) -> str:
    host, slash, start = place.removeprefix(SSH_SCHEME).partition("/")
    if path == "~" or path.startswith("~/"):
        return f"{SSH_SCHEME}{host}/{quote(path)}"
    joined = posixpath.normpath(posixpath.join(f"{slash}{start}" or "/", quote(path)))
    return f"{SSH_SCHEME}{host}{joined}"


def _collapse_dots(path: PurePath) -> PurePath:
    """Names of the folder itself and of the one above are worked out, as people mean them."""
    kept: list[str] = []
    for part in path.parts[1:]:
        if part == "..":
            kept = kept[:-1]
        elif part != ".":
            kept.append(part)
    return PurePath(path.anchor, *kept)
