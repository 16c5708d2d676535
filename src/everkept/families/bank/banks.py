"""The bank that a call uses, and the valid names and URIs of its files."""

import asyncio
import json
import posixpath
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import PurePath
from typing import Any, Literal, Protocol, cast
from urllib.parse import quote, unquote

from everkept.core.files import FileStore, FileStores, parse_path
from everkept.core.ports import Library, RecordStore
from everkept.core.sessions import Session, ToolCall, get_acting_account
from everkept.core.text import clip_text
from everkept.errors import NO_FOLDER, BankNotFound, InvalidInput, NotFound, Refused, StoreDamaged, escape_name
from everkept.families.bank.model import LEGACY_NAMES, BankOptions
from everkept.values import Value, field

FILE_SUFFIXES = (".md", ".json")
_CAMEL_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[^\W\d_]+")
# Invisible and unassigned characters.
_INVISIBLE_CATEGORIES = frozenset({"Cf", "Cc", "Cs", "Co", "Cn", "Zl", "Zp"})
# Scripts with letters that look alike.
_CONFUSABLE_SCRIPTS = frozenset({"LATIN", "CYRILLIC", "GREEK"})

# A case-insensitive disk may have them in any case.
_CURRENT_BY_OLD_NAME = {old.lower(): today for today, old in LEGACY_NAMES.items()}


def check_name(name: str) -> str:
    """Return the name. Raise Refused if it is not valid for a file at the top level of a bank."""
    parts = parse_path(name)
    if len(parts) != 1 or not name.lower().endswith(FILE_SUFFIXES) or name.startswith("."):
        shown = escape_name(clip_text(name, 120))
        raise Refused(
            f'"{shown}" is not a valid name for a bank file.',
            hint="Use a name at the top level of the bank that ends in .md or .json.",
            name=shown,
        )
    return name


def check_new_name(name: str) -> str:
    """Return the name. Also raise Refused if it looks like another one. Existing files with such a name can be read."""
    check_name(name)
    if reason := _find_deception(unicodedata.normalize("NFC", name)):
        shown = ascii(clip_text(name, 120))[1:-1]
        raise Refused(
            f'"{shown}" is not a valid name for a new file: {reason}.',
            hint="Use letters, digits, '-', '_' and '.'.",
            name=shown,
        )
    return name


def is_outside_bank(target: str | None) -> bool:
    """Return whether a link leads to something that is not a file at the top level of the bank."""
    if target is None:
        return False
    try:
        check_name(target)
    except Refused:
        return True
    return False


def normalize_name(name: str) -> str:
    """Return the name for a new file: activeContext.md becomes active-context.md."""
    plain = unicodedata.normalize("NFC", name)
    lower = plain.lower()
    if known := _CURRENT_BY_OLD_NAME.get(lower):
        return known
    return plain if plain == lower else _CAMEL_BOUNDARY.sub("-", plain).lower()


def list_candidates(name: str) -> tuple[str, ...]:
    """Return the possible names of a file in order of precedence. A core file's current name comes first."""
    today = normalize_name(name)
    if today in LEGACY_NAMES:
        return tuple(dict.fromkeys((today, LEGACY_NAMES[today])))
    forms = (name, *(unicodedata.normalize(form, name) for form in ("NFC", "NFD")), today)
    return tuple(dict.fromkeys(forms))


def find_matching(names: Iterable[str], name: str) -> str | None:
    """Return the folder's name for this file, in whatever spelling, or None."""
    there = set(names)
    if found := next((form for form in list_candidates(name) if form in there), None):
        return found
    folded, written = _fold_name(name), normalize_name(name)
    alike = [other for other in there if _fold_name(other) == folded]
    alike = sorted(alike or (other for other in there if normalize_name(other) == written))
    if len(alike) > 1:
        shown = " or ".join(map(escape_name, alike))
        message = f'"{escape_name(name)}" matches several files: {shown}.'
        raise InvalidInput(message, hint="Pass the exact name.", filenames=alike)
    return alike[0] if alike else None


def find_present(names: Collection[str], wanted: Iterable[str]) -> list[str]:
    """Return the wanted names that exist in the folder, in whatever spelling."""
    there = set(names)
    found = {name: any(form in there for form in list_candidates(name)) for name in wanted}
    if not all(found.values()):  # comparing all names is slow, so only if necessary
        folded, written = set(map(_fold_name, there)), set(map(normalize_name, there))
        for name in found:
            found[name] |= _fold_name(name) in folded or normalize_name(name) in written
    return [name for name, is_present in found.items() if is_present]


def find_repeated(names: Iterable[str]) -> tuple[str, str] | None:
    """Return two of the names that refer to the same file, or None."""
    seen: dict[str, str] = {}
    for name in names:
        keys = {f"folded {_fold_name(name)}", f"written {normalize_name(name)}"}
        if known := next((seen[key] for key in keys if key in seen), None):
            return known, name
        seen |= dict.fromkeys(keys, name)
    return None


def _fold_name(name: str) -> str:
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _find_deception(name: str) -> str | None:
    for character in name:
        kind = unicodedata.category(character)
        if kind in _INVISIBLE_CATEGORIES or (kind == "Zs" and character != " "):
            return f"it contains the invisible character U+{ord(character):04X}"
    if unicodedata.normalize("NFKC", name) != name:
        return "it contains characters that look like plain ones"
    for word in _WORD.findall(name):
        scripts = {unicodedata.name(letter, "?").split()[0] for letter in word}
        if len(scripts & _CONFUSABLE_SCRIPTS) > 1:
            return "one word mixes alphabets that look alike"
    return None


URI_SCHEME = "memory-bank://"
GRAPH_VIEW = "graph/graph.md"  # the only document that is not at the top level of the bank


# Other files at the top level of a bank that clients can read.
MEDIA_TYPES = {
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
}


def get_media_type(name: str) -> str | None:
    """Return the media type of a picture or document at the top level of a bank, or None."""
    kind = MEDIA_TYPES.get(PurePath(name).suffix.lower())
    return kind if kind and len(parse_path(name)) == 1 and not name.startswith(".") else None


def build_uri(path: str) -> str:
    return URI_SCHEME + quote(path, safe="/")


def parse_uri(uri: str) -> str:
    """Return the path of the document in its bank. Raise InvalidInput if the URI is invalid."""
    try:
        path = unquote(uri.removeprefix(URI_SCHEME), errors="strict").removesuffix("/")
        if path == GRAPH_VIEW or get_media_type(path) is not None:
            return path
        return check_name(path if path.lower().endswith(FILE_SUFFIXES) else f"{path}.md")
    except (UnicodeDecodeError, Refused) as error:
        raise InvalidInput(
            f"Invalid URI format: {ascii(uri)[1:-1]}.",
            hint="Use memory-bank:// followed by the name of a bank file.",
            uri=ascii(uri)[1:-1],
        ) from error


StoreKind = Literal["local", "remote"]
_NOTE_PREFIX = "bank store "


class StoreRegistration(Value):
    store_id: str
    path: str  # of the bank's parent folder, or of the bank itself
    kind: StoreKind
    registered_at: int
    last_used_at: int


class StoreRegistry:
    """Registered stores, one note each, so that concurrent registrations do not overwrite each other."""

    def __init__(self, library: Library) -> None:
        self._library = library

    async def list_stores(self) -> list[StoreRegistration]:
        """Return the stores in the order of registration."""
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
                hint="List stores with list_stores, or add one with register_store.",
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
        """Remove a store. Return False if it is not registered."""
        if await self._library.get_note(_NOTE_PREFIX + store_id) is None:
            return False
        await self._library.set_note(_NOTE_PREFIX + store_id, None)
        return True


def _parse_registration(store_id: str, value: str) -> StoreRegistration:
    try:
        return StoreRegistration(store_id, **cast(dict[str, Any], json.loads(value)))
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreDamaged(
            f'The registration of the store "{escape_name(store_id)}" is damaged.',
            hint="Remove it with unregister_store, then register the bank again.",
            storeId=store_id,
        ) from error


SSH_SCHEME = "ssh://"
UNKNOWN_USER = "Unknown User"
# A folder with one of these files is a bank. A progress.md is not enough, because any project may have one.
BANK_MARKER_FILES = (*LEGACY_NAMES, *LEGACY_NAMES.values())
STATELESS_HINT = "This connection is stateless. Register the store, and pass `storeId` with each call."


class FileHistory(Protocol):
    """Earlier versions of a bank's files, and the versions that a session knows."""

    async def keep(self, changes: Mapping[str, tuple[bytes, bytes]], undoes: int | None = None) -> None:
        """Keep the old content of each file that a write changes. A pair is the content before and after."""
        ...

    def note(self, name: str, data: bytes) -> None:
        """Remember that the session knows this content of a file."""
        ...

    def follow(self, name: str, before: bytes, after: bytes) -> None:
        """Remember the session's own edit, if the session knew the content before it."""
        ...

    def check_known(self, name: str, current: bytes) -> None:
        """Raise EtagMismatch if the session knows another content."""
        ...


class Bank(Value):
    """A bank's folder, and its parent folder, usually a project's."""

    files: FileStore
    home: FileStore
    history: FileHistory | None = field(default=None, repr=False, compare=False)

    @property
    def address(self) -> str:
        return self.files.address

    @property
    def folder(self) -> str:
        return get_last_part(self.files.address)


class BankRecords(Protocol):
    """Records of the project that a bank belongs to: its graph and the index of its files."""

    async def find_project_id(self, bank: Bank) -> str | None:
        """Return the project's id, or None if it is not created yet."""
        ...

    async def open_to_read(self, bank: Bank) -> RecordStore:
        """Open the records. A project that is not created yet reads as empty."""
        ...

    async def open_to_write(self, bank: Bank) -> RecordStore: ...


class Banks:
    """Choice of the bank: the call's store, then the session's, then the initial one."""

    def __init__(
        self,
        files: FileStores,
        registry: StoreRegistry,
        options: BankOptions,
        attach: Callable[[Bank, Session], Bank] | None = None,
    ) -> None:
        self._files = files
        self._attach = attach  # adds the history of files
        self.registry = registry
        self.options = options
        self._author: str | None = None  # cached result of `read_author`

    async def find_username(self) -> str:
        """Return the name for entries: the account's, the configured one, or the machine's."""
        account = get_acting_account()
        if account is not None:
            return account.name
        if self.options.username is not None:
            return self.options.username
        if self._author is None:
            found = await asyncio.to_thread(self.options.read_author) if self.options.read_author else None
            self._author = found or UNKNOWN_USER
        return self._author

    async def require_bank(self, call: ToolCall, store_id: str | None = None) -> Bank:
        """Return the existing bank of a call, with the history of its files. Raise BankNotFound."""
        return self.attach_history(await self._require_bank(call, store_id), call)

    def attach_history(self, bank: Bank, call: ToolCall) -> Bank:
        """Return the bank with the history of its files, if that is kept."""
        return bank if self._attach is None else self._attach(bank, call.session)

    async def _require_bank(self, call: ToolCall, store_id: str | None) -> Bank:
        place = self.options.place
        if store_id is None and call.session.bank is None and place is not None:
            # The usual case, without looking elsewhere.
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
        """Return the bank of a call, which may not exist yet, or None if no folder is known."""
        if store_id is not None:
            return await self._find_store(call, store_id)
        if call.session.bank is not None:
            return await self.open_at(call.session.bank)
        if self.options.place is None:
            return None
        return await self.open_in_folder(self.options.place)

    async def _find_store(self, call: ToolCall, store_id: str) -> Bank:
        """Return the bank with this id. The active bank has one too, even if it is not registered."""
        try:
            return await self.open_in_folder((await self.registry.get(store_id)).path)
        except NotFound:
            bank = await self.find_bank(call)
            if bank is None or store_id not in (bank.home.address, get_last_part(bank.home.address)):
                raise
            return bank

    async def open_in_folder(self, address: str) -> Bank:
        """Open the bank of a project's folder. The folder may itself be a bank."""
        inner = await self.open_at(self._join_folder(address))
        if await _is_inside(inner):
            return inner
        itself = get_last_part(address) == self.options.folder or await self._is_bank(address)
        return await self.open_at(address) if itself else inner

    async def open_at(self, address: str) -> Bank:
        return Bank(await self._files.open_folder(address), await self._files.open_folder(get_parent(address)))

    async def check_allowed(self, address: str) -> None:
        """Raise Refused for a folder that the caller may not use.

        A remote caller can use only folders, and keys for other machines, that were registered on this machine.
        """
        if self.options.free_paths:
            return
        place = self.options.place
        stores = [store.path for store in await self.registry.list_stores()]
        named = [*stores, *([] if place is None else [place])]
        known = {await self._read_identity(each) for each in named}
        known |= {await self._read_identity(self._join_folder(each)) for each in named}
        if await self._read_identity(address) not in known:
            raise Refused(
                f"{address} is not a registered memory bank.",
                hint="On the server, run `everkept register-store ID PATH`, then pass that id as storeId.",
                argument="path",
            )

    async def _read_identity(self, address: str) -> str:
        """Return an address that is equal for all paths to one local folder. Remote folders are not contacted."""
        if is_ssh(address):
            return address.rstrip("/")
        return (await self._files.open_folder(address)).address

    def select(self, call: ToolCall, bank: Bank) -> str | None:
        """Make this the session's bank. Return a hint if the connection is stateless."""
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
    """Return whether the project folder contains this bank. Raise Refused for a link that leads outside.

    A cloned repository must not turn any folder into a bank. To use such a folder, name it directly.
    """
    found = await bank.home.read_info(bank.folder)
    return found is not None and found.is_folder


def get_last_part(address: str) -> str:
    return address.rstrip("/").rpartition("/")[2] if is_ssh(address) else PurePath(address).name


def get_parent(address: str) -> str:
    if not is_ssh(address):
        return str(PurePath(address).parent)
    host, _, path = address.removeprefix(SSH_SCHEME).partition("/")
    return f"{SSH_SCHEME}{host}/{path.rstrip('/').rpartition('/')[0]}"


def is_ssh(address: str) -> bool:
    return address.startswith(SSH_SCHEME)


async def resolve_allowed(banks: Banks, path: str) -> str:
    """Return the address of a folder. Raise Refused if the caller may not use it."""
    address = resolve_address(path, banks.options.place)
    await banks.check_allowed(address)
    return address


def resolve_address(path: str, place: str | None) -> str:
    """Return the address of a folder. Relative paths start at `place`, the initial folder.

    If `place` is on another machine, all paths without an address are on that machine.
    """
    if "://" in path:
        return _check_address(path)
    if place is not None and place.startswith(SSH_SCHEME):
        return _resolve_remote(path, place)
    if path.startswith("~") or PurePath(path).is_absolute():
        return path
    if place is None:
        raise InvalidInput(
            f'"{path}" is relative, and there is no folder to start from.',
            hint="Pass an absolute path.",
            argument="path",
            value=path,
        )
    return str(_collapse_dots(PurePath(place) / path))


def _check_address(path: str) -> str:
    """Return an ssh address unchanged, because the bank's folder is joined to it later.

    Errors in an address with `@` are left to the code that opens it, which hides a possible password.
    """
    scheme, _, rest = path.partition("://")
    if scheme.lower() != "ssh":
        raise _build_address_error(f'"{scheme}://…" is not a supported address.')
    authority = rest.partition("/")[0]
    if "@" not in authority:
        raise _build_address_error(f'"{path}" has no {"user" if authority else "host"}.')
    return SSH_SCHEME + rest


def _build_address_error(message: str) -> InvalidInput:
    hint = "Pass a path, or an address such as ssh://me@example.com/home/me/project."
    return InvalidInput(message, hint=hint, argument="path")


def _resolve_remote(path: str, place: str) -> str:
    host, slash, start = place.removeprefix(SSH_SCHEME).partition("/")
    if path == "~" or path.startswith("~/"):
        return f"{SSH_SCHEME}{host}/{quote(path)}"
    joined = posixpath.normpath(posixpath.join(f"{slash}{start}" or "/", quote(path)))
    return f"{SSH_SCHEME}{host}{joined}"


def _collapse_dots(path: PurePath) -> PurePath:
    """Resolve `.` and `..` without looking at links."""
    kept: list[str] = []
    for part in path.parts[1:]:
        if part == "..":
            kept = kept[:-1]
        elif part != ".":
            kept.append(part)
    return PurePath(path.anchor, *kept)
