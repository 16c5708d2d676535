import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.hooks.repairs import mask_command, mask_output

MASK = "[masked: password]"


@pytest.mark.parametrize(
    "form",
    [
        "PGPASSWORD={} psql -h db shop",
        "./deploy --password {} --region eu",
        "./deploy --password={}",
        "./deploy --db-pass '{}'",
        "MYSQL_PWD={} ./migrate",
        'export API_TOKEN="{}"',
        "Connect-Shop -Password {}",
        "mysql -u root -p{} shop",
    ],
)
@pytest.mark.parametrize("secret", ["hunter2", "swordfish", "abc"])
def test_what_a_command_is_given_as_a_secret_is_not_shown(form: str, secret: str) -> None:
    assert mask_command(form.format(secret)) == form.format(MASK)


@pytest.mark.parametrize(
    "command",
    [
        "./deploy --password $PASSWORD",
        "./deploy --password-file secrets.txt",
        "TOKEN_FILE=/run/token TOKEN=/run/token ./deploy",
        "./ask --max-token 512 --token",
        "./deploy --bypass checks",
        "git commit -m 'Ask for a password'",
        "./deploy --password --verbose",
    ],
)
def test_what_only_speaks_of_one_is(command: str) -> None:
    assert mask_command(command) == command


def test_a_secret_of_the_command_is_not_in_its_output_either() -> None:
    output = "Error: swordfish is wrong\nTry curl -u me:hunter22 x"
    shown = mask_output("./deploy --password swordfish", output)
    assert shown == f"Error: {MASK} is wrong\nTry curl -u me:{MASK} x"


def test_a_short_one_is_no_reason_to_spoil_the_output() -> None:
    assert mask_output("X_PASSWORD=shop ./test", "src/shop.py fails") == "src/shop.py fails"


@given(st.text(alphabet="-=pass word'\"\\ ;", max_size=60))
def test_hiding_what_is_hidden_changes_nothing(command: str) -> None:
    shown = mask_command(command)
    assert mask_command(shown) == shown
