import asyncssh

from everkept.errors import ReadOnly
from everkept.files.ssh_requests import translate_error


def test_an_error_about_the_folder_itself_names_it() -> None:
    denied = asyncssh.SFTPPermissionDenied("Permission denied")
    error = translate_error(denied, "example.com", "", root="/home/ada/shop", writing=True)
    assert isinstance(error, ReadOnly)
    assert error.message.startswith('Cannot write "/home/ada/shop" on example.com')
