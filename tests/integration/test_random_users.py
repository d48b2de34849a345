"""Spark under a user that its image does not list, as OpenShift gives each namespace its own.

A namespace of users and mounts has the relevant parts of a container: the number of the user, and
the file of names. No cluster with CRI-O runs here; its line in that file is written as CRI-O does.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.patience import WITHIN_S

from headrace.toolchain.java import packaged_jre

USER = 1000660000
"""User id like OpenShift's, far above the user ids of an image."""
IMAGE = "root:x:0:0:root:/root:/bin/bash\nheadrace:x:10001:10001::/tmp:/usr/sbin/nologin\n"
"""Relevant lines of ``/etc/passwd`` in the image of ``spark-jobs/Dockerfile``."""
CRI_O = f"{USER}:x:{USER}:0:{USER} user:/tmp:/sbin/nologin\n"
"""Line that CRI-O adds (``GeneratePasswd`` of its ``utils``)."""
SPARK_ENV = Path(__file__).parents[2] / "spark-jobs" / "spark-env.sh"
SCRIPT = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.range(3).count(), spark.sparkContext.sparkUser())
"""


def run_spark(tmp_path: Path, names: str) -> "subprocess.CompletedProcess[str]":
    """Run Spark's script with the image's ``spark-env.sh``, as ``USER`` of the group 0."""
    passwd, settings = tmp_path / "passwd", tmp_path / "conf"
    passwd.write_text(names)
    settings.mkdir()
    shutil.copy(SPARK_ENV, settings)
    mounted = 'mount --bind "$1" /etc/passwd && exec "$2" -c "$3"'
    return subprocess.run(
        [
            *("unshare", "--user", f"--map-user={USER}", "--map-group=0", "--mount", "--keep-caps"),
            *("bash", "-c", mounted, "bash", str(passwd), sys.executable, SCRIPT),
        ],
        env=os.environ
        | {
            "JAVA_HOME": str(packaged_jre()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONF_DIR": str(settings),
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


@pytest.mark.long
def test_it_runs_where_the_runtime_names_the_user(tmp_path: Path) -> None:
    done = run_spark(tmp_path, IMAGE + CRI_O)
    assert done.stdout == f"3 {USER}\n", done.stderr


def test_it_says_what_is_missing_where_nobody_does(tmp_path: Path) -> None:
    done = run_spark(tmp_path, IMAGE)
    assert done.returncode != 0
    assert f"headrace: user {USER} has no name in /etc/passwd, which Spark needs" in done.stderr
