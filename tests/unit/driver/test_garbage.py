"""A driver frees clients that are referenced only by an error."""

import subprocess
import sys

PROGRAM = """
import gc, sys, time
from headrace.api import ClusterAccess, ClusterSpec
from headrace.driver.process import collect_regularly
from headrace.errors import HeadraceError
from headrace.kafka import Admin
from support.threads import CLIENT, threads_named

gc.disable()  # as if no automatic one came
collect_regularly(0.1)

def fail():
    admin = Admin(ClusterAccess(ClusterSpec(alias="east", bootstrap_servers="127.0.0.1:1")), 0.2)
    try:
        admin.cluster_id()
    except HeadraceError:
        pass

fail()
while threads_named(CLIENT):
    time.sleep(0.05)
"""


def test_a_client_that_only_an_error_refers_to_is_freed() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert ended.returncode == 0, ended.stderr
