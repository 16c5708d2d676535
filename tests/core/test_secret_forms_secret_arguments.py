import subprocess
import sys

import pytest

from everkept.core.secrets import mask_text
from server_processes import HANG

# Each took minutes once, or would with a look that reads the same words for every program.
HOSTILE = f"""
from everkept.core.secrets import mask_text
from everkept.hooks.unhandled import end_after
end_after({HANG})
for text in ("curl -x " * 50_000, "mysql " + "'" * 100_000, "curl -u " + '"a\\\\' * 40_000):
    mask_text(text)
"""


@pytest.mark.parametrize(
    "form",
    [
        "mysql -u root -p{} shop",
        "mysqldump -p'{}' shop > dump.sql",
        "/usr/bin/mysql.exe -p{}",
        "curl -u admin:{} https://shop.example",
        'curl -s --user "admin:{}" https://shop.example',
        "curl --user=admin:{} https://shop.example",
        "curl -uadmin:{} https://shop.example",
        "docker login -u me -p {} registry.example",
        "sudo podman login -p={} registry.example",
        "sshpass -p {} ssh host",
        "sshpass -p{} ssh host",
        "redis-cli -h cache -a {} ping",
        "mongosh -u root -p {} --quiet",
        "unzip -P {} shop.zip",
        "We run `sshpass -p {}` before the copy.",
        'sh -c "mysql -uroot -p{} shop"',
    ],
)
@pytest.mark.parametrize("secret", ["MyS3cretPw!", "swordfish"])
def test_a_password_among_the_words_of_a_program_is_masked(form: str, secret: str) -> None:
    shown = form.format("[masked: password]")
    assert mask_text(form.format(secret)) == (shown, ["password"])
    assert mask_text(shown) == (shown, [])


@pytest.mark.parametrize(
    "text",
    [
        "mysql -u root -p shop",
        "mysql -u root -p -h db",
        'mysql -p"$PASSWORD" shop',
        "mysql -p<password> shop",
        "docker run -p 8080:80 -u 1000:1000 shop",
        "docker login -u me --password-stdin",
        "docker login -u me -p $TOKEN registry.example",
        "curl -u $USER:$TOKEN https://shop.example",
        "curl -u admin: https://shop.example",
        "curl -u user:password https://shop.example",
        "psql -p 5432 shop && mkdir -p build && ssh -p 2222 host",
        "The mysql client; -pretty is no option of it.",
        "sshpass -p",
    ],
)
def test_what_is_no_password_stays(text: str) -> None:
    assert mask_text(text) == (text, [])


def test_no_text_takes_longer_than_its_length_allows() -> None:
    process = subprocess.run([sys.executable, "-c", HOSTILE], check=False, timeout=2 * HANG)
    assert process.returncode == 0
