"""How known secrets look, and the words that only stand for one."""

# Kinds, the beginning that gives such a secret away, and the rest of it. The form is matched
# from a place where no letter or digit stands before it, and takes the rest of its word along.
FORMS: tuple[tuple[str, str, str], ...] = (
    ("aws access key", "AKIA", r"[A-Z0-9]{16}"),
    ("aws access key", "ASIA", r"[A-Z0-9]{16}"),
    ("github token", "gh", r"[pousr]_[A-Za-z0-9]{30,}"),
    ("github token", "github_pat_", r"\w{30,}"),
    ("gitlab token", "gl", r"(?:pat|dt|rt|cbt|ptt|ft|soat|agent|imt|oas)-[\w-]{18,}"),
    ("slack token", "xox", r"[abeoprs]-[A-Za-z0-9-]{12,}"),
    ("slack token", "xapp-", r"\d-[A-Za-z0-9-]{12,}"),
    ("anthropic key", "sk-ant-", r"[\w-]{16,}"),
    ("openai key", "sk-", r"[\w-]{20,}"),
    ("google api key", "AIza", r"[\w-]{30,}"),
    ("google token", "ya29.", r"[\w-]{20,}"),
    ("google token", "GOCSPX-", r"[\w-]{20,}"),
    ("stripe key", "sk_", r"(?:live|test)_[A-Za-z0-9]{10,}"),
    ("stripe key", "rk_", r"(?:live|test)_[A-Za-z0-9]{10,}"),
    ("stripe key", "whsec_", r"[A-Za-z0-9+/=]{20,}"),
    ("npm token", "npm_", r"[A-Za-z0-9]{30,}"),
    ("pypi token", "pypi-", r"(?:AgE[\w-]{16,}|[\w-]{60,})"),
    ("hugging face token", "hf_", r"[A-Za-z0-9]{28,}"),
    ("json web token", "eyJ", r"[\w-]{8,}+\.eyJ[\w-]{8,}+\.[\w-]{8,}"),
    ("sendgrid key", "SG.", r"[\w-]{16,}+\.[\w-]{16,}"),
    ("twilio key", "SK", r"[0-9a-f]{32}"),
    ("digitalocean token", "do", r"[oprt]_v1_[0-9a-f]{40,}"),
    ("groq key", "gsk_", r"[A-Za-z0-9]{30,}"),
    ("replicate token", "r8_", r"[A-Za-z0-9]{30,}"),
    ("docker token", "dckr_pat_", r"[\w-]{20,}"),
    ("vault token", "hvs.", r"[\w-]{20,}"),
    ("atlassian token", "ATATT3", r"[\w=-]{40,}"),
    ("shopify token", "shp", r"(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    ("databricks token", "dapi", r"[0-9a-f]{32}"),
    ("linear key", "lin_api_", r"[A-Za-z0-9]{30,}"),
    ("notion token", "ntn_", r"[A-Za-z0-9]{40,}"),
    ("grafana token", "glsa_", r"[A-Za-z0-9]{30,}"),
    ("age key", "AGE-SECRET-KEY-", r"[A-Z0-9]{40,}"),
    ("everkept token", "evk", r"[up]?_[\w-]{40,}"),
)
LOOSE = frozenset({"openai key", "slack token"})  # so short a beginning that words have it too

# What instructions have in place of a secret: within it, or instead of it.
FILLERS = ("xxxx", "your", "...", "…", "***", "placeholder", "redacted", "changeme", "change_me")
WORDS = frozenset(
    {
        "none",
        "null",
        "nil",
        "undefined",
        "true",
        "false",
        "str",
        "string",
        "bytes",
        "required",
        "optional",
        "empty",
        "unset",
        "default",
        "password",
        "passwd",
        "pass",
        "secret",
        "token",
        "key",
        "api_key",
        "apikey",
        "value",
        "test",
        "todo",
        "tbd",
        "n/a",
        "hidden",
        "example",
        "replace_me",
        "dummy",
        "xxx",
    }
)
# Signs of a template, which stands where a secret would.
TEMPLATE = ("<", "$", "%", "{", "[", "*")


def is_placeholder(body: str) -> bool:
    return not body or body.startswith(TEMPLATE) or body.lower() in WORDS or has_filler(body)


def has_filler(body: str) -> bool:
    """Whether it stands for a secret, as `xxxx` does in instructions."""
    lowered = body.lower()
    return any(filler in lowered for filler in FILLERS)
