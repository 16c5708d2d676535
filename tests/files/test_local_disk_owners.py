import os
import subprocess
import sys

from everkept.files.local_disk import get_machine_id, is_running


def test_a_process_runs_until_it_ends() -> None:
    assert is_running(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert is_running(child.pid)
        child.kill()
    assert not is_running(child.pid)


def test_a_number_that_no_process_can_have_is_no_error() -> None:
    assert is_running(2**70)


def test_a_machine_is_the_same_for_all_its_processes() -> None:
    code = "from everkept.files.local_disk import get_machine_id; print(get_machine_id(), end='')"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == get_machine_id()
