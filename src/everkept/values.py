"""Value types: classes that consist of their fields and cost little to define.

A standard dataclass writes and compiles six functions when the class is defined, half a millisecond. A server has
hundreds of them and uses a tenth. A `Value` compiles its constructor at the first instance, and shares the rest.
It needs only `typing`, so a hook can afford it.
"""

import sys
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, ClassVar, TypeGuard, TypeVar, cast, dataclass_transform, get_origin, overload

T = TypeVar("T")


class _Missing:
    """Marks a default that does not exist."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()


class ValueField:
    """One field of a value type: name, type, and default or its factory."""

    __slots__ = ("compare", "default", "default_factory", "is_keyword", "name", "repr", "type")

    name: str
    type: Any
    is_keyword: bool

    def __init__(
        self, default: Any, default_factory: Any = MISSING, *, repr: bool = True, compare: bool = True
    ) -> None:
        self.default = default
        self.default_factory = default_factory
        self.repr = repr
        self.compare = compare

    @property
    def is_required(self) -> bool:
        return self.default is MISSING and self.default_factory is MISSING


@overload
def field(*, default: T, repr: bool = True, compare: bool = True) -> T: ...
@overload
def field(*, default_factory: Callable[[], T], repr: bool = True, compare: bool = True) -> T: ...
@overload
def field(*, repr: bool = True, compare: bool = True) -> Any: ...
def field(*, default: Any = MISSING, default_factory: Any = MISSING, repr: bool = True, compare: bool = True) -> Any:
    """Describe a field beyond its type. `default_factory` creates the default of each value.

    `repr=False` hides the field from `repr`; `compare=False` excludes it from equality and hash.
    """
    return ValueField(default, default_factory, repr=repr, compare=compare)


def _list_inherited(base: type) -> tuple[ValueField, ...]:
    return base.__fields__ if isinstance(base, ValueType) else ()


def _take_own_fields(namespace: dict[str, Any], *, kw_only: bool) -> dict[str, ValueField]:
    """Move the declared fields and their defaults out of a class body."""
    found: dict[str, ValueField] = {}
    for name, kind in _read_annotations(namespace).items():
        if kind is ClassVar or get_origin(kind) is ClassVar:
            continue
        default = namespace.pop(name, MISSING)
        each = default if isinstance(default, ValueField) else ValueField(default)
        if isinstance(each.default, (list, dict, set)):
            raise TypeError(f"The default of `{name}` would be shared: use `default_factory`.")
        each.name, each.type, each.is_keyword = name, kind, kw_only
        found[name] = each
    return found


def _read_annotations(namespace: dict[str, Any]) -> Mapping[str, Any]:
    if sys.version_info >= (3, 14):  # a class body then has a function that returns them
        import annotationlib

        make = annotationlib.get_annotate_from_class_namespace(namespace)
        if make is not None:
            return annotationlib.call_annotate_function(make, annotationlib.Format.FORWARDREF)
    return namespace.get("__annotations__", {})


def _build_reader(names: list[str]) -> Callable[[Any], Any]:
    """Return a function that reads these attributes in one step. It does not bind as a method would."""
    return attrgetter(*names) if names else attrgetter("__class__")


def _init_first(self: Any, *args: Any, **kwargs: Any) -> None:
    """Compile the constructor of a type, and call it."""
    kind = cast(Any, type(self))
    kind.__init__ = _compile_init(kind)
    kind.__init__(self, *args, **kwargs)


def _compile_init(kind: Any) -> Callable[..., None]:
    """Write the constructor as a person would. A frozen slot is set through its descriptor."""
    is_frozen = kind.__setattr__ is _refuse_assignment
    known: dict[str, Any] = {"MISSING": MISSING}
    given = ["self"]
    body: list[str] = []
    for each in sorted(kind.__fields__, key=lambda each: each.is_keyword):
        name, value = each.name, each.name
        if each.is_keyword and "*" not in given:
            given.append("*")
        if each.default_factory is not MISSING:
            known[f"make_{name}"] = each.default_factory
            given.append(f"{name}=MISSING")
            value = f"make_{name}() if {name} is MISSING else {name}"
        elif each.default is not MISSING:
            known[f"default_{name}"] = each.default
            given.append(f"{name}=default_{name}")
        else:
            given.append(name)
        if is_frozen:
            known[f"set_{name}"] = getattr(kind, name).__set__
            body.append(f"set_{name}(self, {value})")
        else:
            body.append(f"self.{name} = {value}")
    if hasattr(kind, "__post_init__"):
        body.append("self.__post_init__()")
    lines = "\n    ".join(body or ["pass"])
    exec(f"def __init__({', '.join(given)}):\n    {lines}\n", known)
    init = known["__init__"]
    init.__qualname__ = f"{kind.__qualname__}.__init__"  # the name in the error for a wrong argument
    return init


def _is_equal(self: Any, other: object) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self.__content__(self) == self.__content__(other)


def _compute_hash(self: Any) -> int:
    return hash(self.__content__(self))


def _refuse_assignment(self: Any, name: str, value: Any) -> None:
    raise AttributeError(f"`{name}` of a frozen {type(self).__name__} cannot be assigned.")


def _refuse_deletion(self: Any, name: str) -> None:
    raise AttributeError(f"`{name}` of a frozen {type(self).__name__} cannot be deleted.")


class ValueType(type):
    """Type of value types: turns annotations into slots and fields."""

    __fields__: tuple[ValueField, ...]

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        frozen: bool = True,
        eq: bool = True,
        kw_only: bool = False,
    ) -> "ValueType":
        known = {each.name: each for base in bases[::-1] for each in _list_inherited(base)}
        own = _take_own_fields(namespace, kw_only=kw_only)
        namespace["__slots__"] = tuple(name for name in own if name not in known)
        every = tuple((known | own).values())
        namespace["__fields__"] = every
        namespace["__match_args__"] = tuple(each.name for each in every if not each.is_keyword)
        namespace.setdefault("__init__", _init_first)
        if frozen:
            namespace["__setattr__"] = _refuse_assignment
            namespace["__delattr__"] = _refuse_deletion
        if eq:
            namespace["__content__"] = _build_reader([each.name for each in every if each.compare])
            namespace.setdefault("__eq__", _is_equal)
            namespace.setdefault("__hash__", _compute_hash if frozen else None)
        return super().__new__(cls, name, bases, namespace)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Value(metaclass=ValueType, frozen=False, eq=False):
    """Base of value types: frozen unless defined with `frozen=False`, equal by their fields.

    `eq=False` compares by identity, `kw_only=True` refuses positional arguments. `__post_init__` is called when all
    fields are set.
    """

    def __repr__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in list_fields(self) if each.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), {each.name: getattr(self, each.name) for each in list_fields(self)})


def list_fields(value: Value | type[Value]) -> tuple[ValueField, ...]:
    """Return the fields of a value or of its type, in the order of definition."""
    return value.__fields__


def is_value_type(kind: Any) -> TypeGuard[type[Value]]:
    return isinstance(kind, ValueType)


V = TypeVar("V", bound=Value)


def replace(value: V, /, **changes: Any) -> V:
    """Return a copy with some fields changed."""
    for each in value.__fields__:
        if each.name not in changes:
            changes[each.name] = getattr(value, each.name)
    return type(value)(**changes)


def as_dict(value: Value) -> dict[str, Any]:
    """Return the fields as a dictionary, including values within them."""
    return {each.name: _to_plain(getattr(value, each.name)) for each in list_fields(value)}


def _to_plain(value: Any) -> Any:
    if isinstance(value, Value):
        return as_dict(value)
    if isinstance(value, (list, tuple)):
        items = [_to_plain(item) for item in cast(list[Any], value)]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, Mapping):
        return {key: _to_plain(item) for key, item in cast(Mapping[Any, Any], value).items()}
    return value


def _restore(kind: type[V], content: dict[str, Any]) -> V:
    return kind(**content)
