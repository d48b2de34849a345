"""A process that observes another from outside: memory, CPU, and how soon its health answers.

``python -m bench.operator.probe PID PORT FILE``. Health is served by the operator's event loop:
while that is blocked, it does not answer.
"""

import sys
import time
from pathlib import Path

import psutil
import urllib3

POLL_INTERVAL_S = 0.1


def main(pid: int, port: int, file: Path) -> None:
    """Write lines of monotonic seconds, resident bytes, CPU seconds, and milliseconds to answer."""
    process = psutil.Process(pid)
    pool = urllib3.PoolManager(retries=False)
    with file.open("w", buffering=1) as out:
        while process.is_running():
            began = time.monotonic()
            try:
                pool.request("GET", f"http://127.0.0.1:{port}/healthz", timeout=30)
            except urllib3.exceptions.HTTPError:
                time.sleep(POLL_INTERVAL_S)  # it does not listen yet
                continue
            took_ms = 1000 * (time.monotonic() - began)
            cpu = process.cpu_times()
            rss, cpu_s = process.memory_info().rss, cpu.user + cpu.system
            print(f"{began:.3f} {rss} {cpu_s:.2f} {took_ms:.1f}", file=out)
            time.sleep(POLL_INTERVAL_S)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
