"""A setting as given, and its parsed value. Errors name where a bad one comes from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin

from everkept.errors import EverkeptError, InvalidInput, Refused
from everkept.patterns import compile_late

# Minimum and maximum value.
BOUNDS: dict[str, tuple[int, int | None]] = {
    "port": (0, 65535),
    "max_memories_per_session": (1, None),
    "quota_sessions": (1, None),
    "quota_calls": (1, None),
    "quota_answer_bytes": (65_536, None),
    "quota_projects": (0, None),
    "quota_project_records": (0, None),
    "quota_project_bytes": (0, None),
    "quota_account_records": (0, None),
    "quota_account_bytes": (0, None),
    "trash_days": (0, 36_500),
    "max_connections": (0, None),
    "max_connections_per_address": (0, None),
}
# Other spellings that people know from elsewhere; case does not matter for these settings.
SHIPPED_MODEL = "everkept-minilm-1"
ALIASES: dict[str, dict[str, str]] = {
    "log_level": {"warn": "warning"},
    "embedding_model": {"all-MiniLM-L6-v2": SHIPPED_MODEL},  # shipped before
}
NO_MODEL = "none"
# Settings that are one of these names or a folder.
NAMES_BESIDE_FOLDERS: dict[str, tuple[str, ...]] = {"embedding_model": (SHIPPED_MODEL, NO_MODEL)}
FLAG_ONLY_SETTINGS = frozenset({"config"})
HIDDEN_TEXT = "***"
# Settings that are never shown.
SECRET_SETTINGS = frozenset({"database_password"})

# Up to the last "@", because a password may contain one.
_URL_PASSWORD = compile_late(r"(?<=://)([^\s/:@?#]*:).+(?=@)")
_URL_PARAMETER = compile_late(r"(?i)(?<=[?&])([^\s=&#?]*(?:pass|pwd|password|passwd|secret|token|key)=)[^\s&#]+")


class SecretText(str):
    """Text that is hidden whenever it is displayed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(HIDDEN_TEXT)


class GivenSetting(NamedTuple):
    """Given value of a setting, with its key and source."""

    name: str
    value: Any
    key: str  # as its author knows it: `--port`, `EVERKEPT_PORT` or `port`
    source: str
    file: Path | None = None
    line: int | None = None

    @property
    def is_flag(self) -> bool:
        return self.source.startswith("flag")

    @property
    def shown_value(self) -> Any:
        """Return the value for display."""
        if self.name in SECRET_SETTINGS:
            return HIDDEN_TEXT
        return hide_in_address(self.value) if self.name == "database_url" else hide_secrets(self.value)

    def build_refusal(self, reason: str, allowed: Sequence[str] = ()) -> EverkeptError:
        return Refused(f"{self._describe_source()}; {reason}", **self._build_facts(allowed))

    def build_invalid(self, reason: str, allowed: Sequence[str] = ()) -> InvalidInput:
        return InvalidInput(f"{self._describe_source()}; {reason}", **self._build_facts(allowed))

    def _describe_source(self) -> str:
        where = "" if self.file is None else f" in {self.file}, line {self.line},"
        return f"`{self.key}`{where} is {self.shown_value!r}"

    def _build_facts(self, allowed: Sequence[str]) -> dict[str, Any]:
        facts: dict[str, Any] = {"argument": self.key, "value": self.shown_value}
        if self.file is not None:
            facts |= {"file": str(self.file), "line": self.line}
        return facts | ({"allowed": list(allowed)} if allowed else {})


def hide_secrets(value: Any) -> Any:
    """Return a value for display, without the passwords in its addresses."""
    if isinstance(value, SecretText):
        return HIDDEN_TEXT
    if not isinstance(value, str) or "://" not in value:
        return value
    return _URL_PARAMETER.sub(rf"\1{HIDDEN_TEXT}", _URL_PASSWORD.sub(rf"\1{HIDDEN_TEXT}", value))


def hide_in_address(value: Any) -> Any:
    """Hide the password even in a malformed address."""
    told = hide_secrets(value)
    if not isinstance(told, str) or told != value:
        return told
    start = told.rfind("@")
    told = told if start < 0 else HIDDEN_TEXT + told[start:]
    return told if "://" in told or "?" not in told else told[: told.index("?") + 1] + HIDDEN_TEXT


def parse_setting(kind: Any, given: GivenSetting) -> Any:
    """Parse the value into the type of its setting."""
    if names := NAMES_BESIDE_FOLDERS.get(given.name):
        return _parse_name_or_folder(names, given)
    choices = list_choices(kind)
    if choices:
        return _parse_choice(choices, given)
    if kind is bool:
        return given.value if isinstance(given.value, bool) else _parse_boolean(given)
    if kind is int:
        return _parse_number(given)
    if kind is float:
        return _parse_seconds(given)
    if Path in (kind, *get_args(kind)):
        return _parse_path(given)
    return _parse_text(given)


def list_choices(kind: Any) -> tuple[str, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def _parse_choice(choices: tuple[str, ...], given: GivenSetting) -> str:
    value = str(given.value)
    if aliases := ALIASES.get(given.name):
        value = aliases.get(value.lower(), value.lower())
    if value not in choices:
        raise given.build_invalid(f"it must be one of {', '.join(choices)}.", choices)
    return value


def _parse_name_or_folder(names: tuple[str, ...], given: GivenSetting) -> str:
    """Return the name, or the absolute path of a folder, which need not exist."""
    aliases = ALIASES.get(given.name, {})
    value = aliases.get(str(given.value), str(given.value))
    if value in names:
        return value
    if not value.startswith(("~", ".")) and not set(value) & set("/\\"):
        raise given.build_invalid(f"it must be {', '.join(names)} or the path of a folder, such as ./{value}.", names)
    return str(_parse_path(given).absolute())


def _parse_boolean(given: GivenSetting) -> bool:
    value = str(given.value).lower()
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise given.build_invalid("it must be true or false.", ("true", "false"))


def _parse_number(given: GivenSetting) -> int:
    try:
        value = int(given.value)
    except (TypeError, ValueError):
        raise given.build_invalid("it must be a whole number.") from None
    least, most = BOUNDS.get(given.name, (None, None))
    if (least is not None and value < least) or (most is not None and value > most):
        upper = "" if most is None else f" and {most} at most"
        raise given.build_invalid(f"it must be {least} at least{upper}.")
    return value


def _parse_seconds(given: GivenSetting) -> float:
    try:
        value = float(given.value)
    except (TypeError, ValueError):
        value = 0.0
    if not 0 < value < float("inf"):
        raise given.build_invalid("it must be a number above 0.")
    return value


def _parse_path(given: GivenSetting) -> Path:
    if given.value == "":
        raise given.build_invalid("it must name a folder.")
    path = Path(cast(str, given.value)).expanduser()
    # In a file, a relative path means the same from every folder.
    return path if given.file is None else given.file.parent / path


def _parse_text(given: GivenSetting) -> str:
    if isinstance(given.value, list):
        return ",".join(cast(list[str], given.value))
    return SecretText(given.value) if given.name in SECRET_SETTINGS else str(given.value)
