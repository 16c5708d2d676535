"""Names that nearly all code of a language calls, so that they say nothing about it."""

_PYTHON = """
    print len str int float bool list dict set tuple frozenset bytes bytearray object type range
    enumerate zip map filter sorted reversed sum min max any all abs round isinstance issubclass
    hasattr getattr setattr delattr repr iter next open input super id hash vars dir format ord
    chr callable divmod pow slice property staticmethod classmethod dataclass abstractmethod
    cast Exception ValueError TypeError KeyError IndexError RuntimeError AttributeError OSError
    NotImplementedError StopIteration AssertionError append extend insert remove pop clear copy
    keys values items update setdefault add discard join split strip lstrip rstrip startswith
    endswith replace lower upper encode decode splitlines read write close get sort count index
"""
_JAVASCRIPT = """
    require String Number Boolean Array Object Symbol BigInt Date Error TypeError RangeError Map
    Set WeakMap WeakSet Promise RegExp URL Proxy parseInt parseFloat isNaN setTimeout
    clearTimeout setInterval clearInterval alert super log warn error push pop shift unshift
    slice splice concat join map filter reduce forEach find findIndex some every includes
    indexOf flat flatMap sort reverse keys values entries has get set add delete clear toString
    trim split replace replaceAll startsWith endsWith padStart padEnd toLowerCase toUpperCase
    match test then catch finally bind call apply stringify parse hasOwnProperty assign freeze
    from isArray preventDefault stopPropagation
"""
_GO = """
    append cap clear close complex copy delete imag len make max min new panic print println
    real recover string int int8 int16 int32 int64 uint uint8 uint16 uint32 uint64 float32
    float64 byte rune bool error Error String
"""
_RUST = """
    println print eprintln eprint format write writeln vec panic assert assert_eq assert_ne
    debug_assert todo unimplemented unreachable matches dbg include_str Some None Ok Err Box
    String Vec new default clone unwrap expect unwrap_or unwrap_or_else unwrap_or_default into
    from to_string to_owned as_str as_ref as_mut iter iter_mut into_iter collect map filter
    and_then ok_or ok_or_else map_err push pop insert get get_mut len is_empty is_some is_none
    is_ok is_err ok err await
"""
_JAVA = """
    println printf print String Integer Long Double Boolean Object ArrayList HashMap HashSet
    LinkedList Exception RuntimeException IllegalArgumentException IllegalStateException
    Override Deprecated SuppressWarnings FunctionalInterface SafeVarargs equals hashCode
    toString getClass valueOf length size isEmpty add addAll put get set remove contains
    containsKey stream collect map filter forEach format append of super
"""
_CPP = """
    printf fprintf sprintf snprintf scanf puts malloc calloc realloc free sizeof memcpy memset
    strlen strcmp strcpy assert exit move forward swap make_pair make_unique make_shared
    to_string string vector push_back emplace_back begin end size empty clear insert erase find
    at c_str data get static_cast dynamic_cast reinterpret_cast const_cast
"""
_C_SHARP = """
    WriteLine Write ReadLine ToString Equals GetHashCode GetType nameof typeof String List
    Dictionary HashSet Exception ArgumentException ArgumentNullException
    InvalidOperationException Add Remove Contains ContainsKey Select Where ToList ToArray First
    FirstOrDefault Any All Count OrderBy Format ConfigureAwait Serializable Obsolete
"""

COMMONPLACE: dict[str, frozenset[str]] = {
    "python": frozenset(_PYTHON.split()),
    "javascript": frozenset(_JAVASCRIPT.split()),
    "typescript": frozenset(_JAVASCRIPT.split()),
    "go": frozenset(_GO.split()),
    "rust": frozenset(_RUST.split()),
    "java": frozenset(_JAVA.split()),
    "c": frozenset(_CPP.split()),
    "cpp": frozenset(_CPP.split()),
    "csharp": frozenset(_C_SHARP.split()),
}

# Of these no call is of interest, whatever it is called.
_RECEIVERS = "console Math JSON Object Array Promise Number String Date System fmt std Console"
COMMON_RECEIVERS = frozenset(_RECEIVERS.split())
