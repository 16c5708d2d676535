from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.secrets import find_secrets, mask_json, mask_text

# Put together from pieces, so that nobody takes this file for one that leaks.
MIXED = "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3cD6fG9h"
AWS_ID = "AK" + "IA" + "Q3EGRTZ7X2MLPV4N"
AWS_SECRET = "wJa1rXUt/nFEMIk7+MDENGbPx" + "RfiCYzEXAMP1KEY"
JWT = ".".join(["ey" + "JhbGciOiJIUzI1NiJ9", "ey" + "JzdWIiOiIxMjM0NTYifQ", MIXED])
PRIVATE = " ".join(["PRIVATE", "KEY"])

TOKENS = {
    "aws access key": AWS_ID,
    "github token": "gh" + "p_" + MIXED[:36],
    "gitlab token": "gl" + "pat-" + MIXED[:20],
    "slack token": "xo" + "xb-123456789012-" + MIXED[:24],
    "anthropic key": "sk" + "-ant-api03-" + MIXED,
    "openai key": "sk" + "-proj-" + MIXED,
    "google api key": "AI" + "za" + MIXED[:35],
    "stripe key": "sk" + "_live_" + MIXED[:24],
    "npm token": "np" + "m_" + MIXED[:36],
    "pypi token": "py" + "pi-AgEIcHlwaS5vcmc" + MIXED,
    "hugging face token": "h" + "f_" + MIXED[:34],
    "json web token": JWT,
    "telegram bot token": "123456789:AA" + MIXED[:33],
    "sendgrid key": "SG" + "." + MIXED[:22] + "." + MIXED[:38],
    "twilio key": "S" + "K" + "0123456789abcdef" * 2,
    "digitalocean token": "do" + "p_v1_" + "0123456789abcdef" * 4,
    "everkept token": "ev" + "k_" + MIXED + "abc",
}


@pytest.mark.parametrize("kind", TOKENS)
def test_a_token_of_a_known_form_is_masked_and_the_rest_is_kept(kind: str) -> None:
    text, kinds = mask_text(f"For the deploy we use {TOKENS[kind]}, and it works.")
    assert text == f"For the deploy we use [masked: {kind}], and it works."
    assert kinds == [kind]


@pytest.mark.parametrize("prefix", ["gho_", "ghu_", "ghs_", "ghr_", "github_pat_"])
def test_every_kind_of_github_token_is_known(prefix: str) -> None:
    assert mask_text(prefix + MIXED) == ("[masked: github token]", ["github token"])


@pytest.mark.parametrize("prefix", ["evku_", "evkp_"])
def test_tokens_of_accounts_are_known_as_the_owners_is(prefix: str) -> None:
    assert mask_text(prefix + MIXED + "abc") == ("[masked: everkept token]", ["everkept token"])


def test_the_secret_half_of_an_aws_key_goes_with_its_id() -> None:
    text, kinds = mask_text(f"{AWS_ID}\n{AWS_SECRET}\n")
    assert text == "[masked: aws access key]\n[masked: aws secret key]\n"
    assert kinds == ["aws access key", "aws secret key"]
    assert mask_text(f"aws_secret_access_key = {AWS_SECRET}")[0].endswith("= [masked: secret]")


def test_a_storage_key_in_a_connection_string_is_masked_alone() -> None:
    text = "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey={};Suffix=net"
    assert mask_text(text.format(MIXED * 2 + "==")) == (
        text.format("[masked: azure storage key]"),
        ["azure storage key"],
    )


@pytest.mark.parametrize("label", ["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "])
def test_a_private_key_is_masked_as_a_block(label: str) -> None:
    block = f"-----BEGIN {label}{PRIVATE}-----\nMIIE\nabc=\n-----END {label}{PRIVATE}-----"
    assert mask_text(f"before\n{block}\nafter") == ("before\n[masked: private key]\nafter", ["private key"])
    assert mask_text(block.replace("\n", "\\n"))[0] == "[masked: private key]"


def test_a_private_pgp_block_is_masked_and_a_public_one_is_not() -> None:
    block = "-----BEGIN PGP {0}-----\n\nlQOYBF\n-----END PGP {0}-----"
    assert mask_text(block.format(PRIVATE + " BLOCK"))[0] == "[masked: private key]"
    public = block.format("PUBLIC KEY BLOCK")
    assert mask_text(public) == (public, [])


def test_a_private_key_without_its_end_is_masked_as_far_as_it_goes() -> None:
    text = f"-----BEGIN {PRIVATE}-----\n{MIXED}\n{MIXED}\nThis is the one for staging."
    assert mask_text(text)[0] == "[masked: private key]\nThis is the one for staging."


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("postgres://app:{}@db.local:5432/shop", "hunter2"),
        ("redis://:{}@cache", "pw"),
        ("https://bob:{}@example.com/x?y=1", "p@ss:word"),
        ("mysql://root:{}@[::1]/shop", "Tr0ub4dor"),
    ],
)
def test_a_password_in_a_url_is_masked_between_user_and_host(before: str, after: str) -> None:
    assert mask_text(before.format(after)) == (before.format("[masked: url password]"), ["url password"])


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("password={}", "password"),
        ("the staging password is {}, as before", "password"),
        ('{{"passwd": "{}"}}', "password"),
        ('{{\\"password\\": \\"{}\\"}}', "password"),
        ("config['password'] = '{}'", "password"),
        ("password: str = '{}'", "password"),
        ("<password>{}</password>", "password"),
        ("mysqldump --password {} shop", "password"),
        ("machine example.com login bob password {}", "password"),
        ('api_key = "{}"', "api key"),
        ("API key: {}", "api key"),
        ("https://example.com/?access_key={}&page=2", "api key"),
        ("client_secret: '{}'", "secret"),
        ("SECRET_KEY={}", "secret"),
        ("auth_token => {}", "token"),
        ("curl --token {}", "token"),
        ("Authorization: Bearer {}", "authorization"),
        ("-H 'authorization: Basic {}'", "authorization"),
    ],
)
def test_what_is_given_to_a_name_of_a_secret_is_masked(form: str, kind: str) -> None:
    assert mask_text(form.format("hunter2hunter22")) == (form.format(f"[masked: {kind}]"), [kind])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Password: hunter2hunter22.", "Password: [masked: password]"),
        ("password is hunter2! Keep it.", "password is [masked: password] Keep it."),
        ("pwd=Tr0ub4dor?!", "pwd=[masked: password]"),
        ("DB_PASSWORD=swordfish!", "DB_PASSWORD=[masked: password]"),
        ("The password is wrong!", "The password is wrong!"),
        ("password: required!", "password: required!"),
        ("const password = this.password!;", "const password = this.password!;"),
    ],
)
def test_a_mark_at_the_end_goes_with_a_secret_and_makes_none_of_a_word(text: str, shown: str) -> None:
    assert mask_text(text)[0] == shown


def test_a_short_password_is_masked_too() -> None:
    assert mask_text("password=hunter2")[1] == ["password"]
    assert mask_text("DB_PASSWORD=swordfish")[1] == ["password"]
    assert mask_text("password: x9kd02lsq")[1] == ["password"]  # begins as X509 does
    assert mask_text("passphrase: 'correct horse battery staple'")[1] == ["password"]


def test_a_very_long_value_goes_as_a_whole() -> None:
    assert mask_text("api_key=" + MIXED * 100 + " end")[0] == "api_key=[masked: api key] end"


def test_a_secret_that_two_rules_see_is_masked_once_by_the_more_exact_one() -> None:
    token = TOKENS["github token"]
    assert mask_text(f"token = '{token}'")[0] == "token = '[masked: github token]'"
    assert mask_text(f"https://bob:{token}@x.org")[0] == "https://bob:[masked: github token]@x.org"
    assert mask_text(f"Authorization: Bearer {JWT}")[1] == ["json web token"]


def test_each_kind_is_told_once_in_the_order_of_the_text() -> None:
    text = f"{TOKENS['npm token']} {AWS_ID} {TOKENS['npm token']}"
    assert mask_text(text)[1] == ["npm token", "aws access key"]


@pytest.mark.parametrize(
    "text",
    [
        "The password policy is strict: at least 12 characters.",
        "Password: required. Token: optional.",
        "The token is stored in the keychain, the secret in the vault.",
        "Bearer token authentication is used; basic authentication is off.",
        "The secretary of the board keeps the tokens of appreciation.",
        "commit da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "sha512-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
        "550e8400-e29b-41d4-a716-446655440000",
        "memory:01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "Set AWS_SECRET_ACCESS_KEY and GITHUB_TOKEN.",
        "export API_KEY=$OTHER_KEY_2",
        "token: ${TOKEN}",
        "token=<YOUR_TOKEN>",
        "api_key=xxx",
        "api_key: your-api-key-123456",
        "password=***",
        "password={{ db_password1 }}",
        "secret: DB_PASSWORD_2",
        "sk-your-api-key-goes-here-123",
        "gh" + "p_" + "x" * 36,
        "PWD=/home/ada/project1",
        "password_file=/run/secrets/db1",
        "password: ~/secrets/file1",
        "password = settings.db2.password",
        "password = get_password1(user)",
        "token = request.headers['x-1']",
        "BasicAuth(password=auth[1])",
        "password: str",
        "max_tokens=4096, token_count=100000",
        "tokenizer: gpt2wordpiece30522",
        "Passwords: hashed with argon2id. password: bcrypt2a",
        "http://localhost:8080/a@b",
        "git@github.com:ada/shop.git",
        "ssh://git@example.com:22/shop.git",
        "https://user:${PASS}@example.com/",
        "https://user:<password>@example.com/",
        "risk-assessment1234567890abcdefgh",
        "src/everkept/core/secrets.py:42",
        "The key is under the doormat; the API key section of the docs is long.",
        "",
    ],
)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert mask_text(text) == (text, [])


SOME_SECRET = st.sampled_from([*TOKENS.values(), AWS_SECRET, "hunter2", "password=hunter2"])
PIECES = st.one_of(
    st.text(max_size=12),
    SOME_SECRET,
    st.sampled_from(["password", "token", "secret: ", "=", ": ", '"', " is ", "://a:", "@b", "[masked: x]"]),
    st.sampled_from([f"-----BEGIN {PRIVATE}-----", f"-----END {PRIVATE}-----", "Bearer ", "\n"]),
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_masking_what_is_masked_changes_nothing(text: str) -> None:
    once, _ = mask_text(text)
    assert mask_text(once) == (once, [])


@given(st.text(), st.sampled_from(sorted(TOKENS.values())), st.text())
def test_a_token_among_any_words_is_gone(before: str, token: str, after: str) -> None:
    text, kinds = mask_text(f"{before} {token} {after}")
    assert token not in text
    assert kinds


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz ,.", max_size=200))
def test_plain_sentences_are_never_touched(text: str) -> None:
    assert mask_text(text) == (text, [])


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "password:",
        "password=a1",
        "token='",
        f"-----BEGIN {PRIVATE}-----",
        "://a:",
        "eyJaaaaaaaaa.",
        AWS_ID + " ",
        "machine x login ",
        "[masked: a]",
    ],
)
def test_a_hostile_text_of_a_megabyte_ends(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    assert len(mask_text(text)[0]) < 2 * len(text)


TOKEN = TOKENS["github token"]


@pytest.mark.parametrize(
    ("given", "kept", "kinds"),
    [
        (f"uses {TOKEN}", "uses [masked: github token]", ["github token"]),
        ([1, None, True, "plain"], [1, None, True, "plain"], []),
        (("a", TOKEN), ("a", "[masked: github token]"), ["github token"]),
        ({"a": {"b": [f"x {TOKEN}"]}}, {"a": {"b": ["x [masked: github token]"]}}, ["github token"]),
        ({"password": "hunter2"}, {"password": "[masked: password]"}, ["password"]),
        ({"password": "two words"}, {"password": "[masked: password]"}, ["password"]),
        ({"dbPassword": "x9kdlw!"}, {"dbPassword": "[masked: password]"}, ["password"]),
        ({"password": "$ecret!"}, {"password": "[masked: password]"}, ["password"]),
        ({"password": 12345678}, {"password": "[masked: password]"}, ["password"]),
        ({"password": f"{TOKEN} or x"}, {"password": "[masked: password]"}, ["password"]),
        ({"passwords": ["one1", "two2"]}, {"passwords": ["[masked: password]"] * 2}, ["password"]),
        ({"passwords": {"ada": "hunter2"}}, {"passwords": {"ada": "[masked: password]"}}, ["password"]),
        ({"apiKey": "abcdef"}, {"apiKey": "[masked: api key]"}, ["api key"]),
        ({"client-secret": "abcdef"}, {"client-secret": "[masked: secret]"}, ["secret"]),
        ({"auth_token": "abc12345"}, {"auth_token": "[masked: token]"}, ["token"]),
        ({"token": TOKEN}, {"token": "[masked: github token]"}, ["github token"]),
        ({"Authorization": "Basic dXNlcjpw"}, {"Authorization": "Basic [masked: authorization]"}, ["authorization"]),
        ({f"for {TOKEN}": "x"}, {"for [masked: github token]": "x"}, ["github token"]),
        ({"password=hunter2": "kept"}, {"password=[masked: password]": "kept"}, ["password"]),
    ],
)
def test_secrets_in_json_are_masked_in_keys_and_values(given: Any, kept: Any, kinds: list[str]) -> None:
    assert mask_json(given) == (kept, kinds)


@pytest.mark.parametrize(
    "value",
    [
        {"password": "[masked: password]"},
        {"password": "required", "secret": None, "token": True},
        {"password": "${DB_PASSWORD}", "api_key": "STRIPE_KEY", "secret": "<secret>"},
        {"password": "/run/secrets/db", "password_policy": "12 signs at least"},
        {"password_length": 12345, "tokens": 123456789, "max_tokens": "123456789"},
        {"token": "refresh", "tokenizer": "wordpiece30522", "token_type": "bearer1"},
        {"token": {"type": "bearer", "expires": "2026-01-01T00:00:00Z"}},
        {"secretary": "Ada Lovelace", "passport": "in the drawer"},
        {"commit": "da39a3ee5e6b4b0d3255bfef95601890afd80709", "keys": ["a", "b"]},
    ],
)
def test_json_without_a_secret_stays(value: Any) -> None:
    assert mask_json(value) == (value, [])


def test_no_value_is_lost_where_two_keys_become_the_same() -> None:
    mask = "[masked: github token]"
    kept, _ = mask_json({TOKEN: 1, mask: 2, TOKEN[:-1]: 3})
    assert kept == {f"{mask} 2": 1, mask: 2, f"{mask} 3": 3}


LINES = st.lists(PIECES, max_size=5).map("".join)
KEYS = st.one_of(LINES, st.sampled_from(["password", "apiKey", "token", "secrets", "Authorization"]))
VALUES = st.recursive(
    st.one_of(LINES, st.integers(), st.booleans(), st.none()),
    lambda below: st.one_of(st.lists(below, max_size=3), st.dictionaries(KEYS, below, max_size=3)),
    max_leaves=8,
)


@given(VALUES)
def test_masking_json_that_is_masked_changes_nothing(value: Any) -> None:
    once, _ = mask_json(value)
    assert mask_json(once) == (once, [])


@given(VALUES)
def test_masking_json_keeps_its_shape(value: Any) -> None:
    def shape(value: Any) -> Any:
        if isinstance(value, dict):
            return [shape(item) for item in value.values()]
        return [shape(item) for item in value] if isinstance(value, list) else None

    assert shape(mask_json(value)[0]) == shape(value)


def test_the_spans_are_where_the_masks_come() -> None:
    text = "password: hunter2hunter2 and AKIA" + "ABCDEFGHIJKLMNOP here"
    (first, second) = find_secrets(text)
    assert text[first[0] : first[1]] == "hunter2hunter2"
    assert text[second[0] : second[1]].startswith("AKIA")
    assert [first[2], second[2]] == mask_text(text)[1]
    assert find_secrets("nothing here") == []
