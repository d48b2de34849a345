"""Cell that the node runs in: its own network and mount namespace.

No interface leads out of it, so that the machine's own network is neither read nor changed. Files
of the whole machine that components write are replaced by copies in the cell.
"""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from cluster.commands import SERVICES
from cluster.node.layout import (
    BRIDGE,
    HIDDEN,
    LOGS,
    MADE,
    MOUNTS,
    NETWORK,
    NODE_IP,
    PKI,
    RUN,
    cgroups,
    kubelet_folder,
    store,
)

from headrace.errors import Fatal, GaveUp

HIDDEN_FOLDERS = (
    "/run/containerd",
    "/run/netns",
    "/var/lib/cni",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)
"""Folders that components always write to. The cell has its own folders in their place."""
KERNEL_SETTINGS = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""Settings that a kubelet changes and that have no namespace. The cell has inert copies."""
KILL_TIMEOUT_S = 60
CLONE_NEWNET = 0x40000000  # linux/sched.h

BRIDGE_FILTER = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
"""File that exists while the kernel has its module ``br_netfilter``, built in or loaded."""

INSIDE = f"""
mount --make-rshared /
for setting in {" ".join(KERNEL_SETTINGS)}; do
  copy={HIDDEN}/proc/$setting; mkdir -p "${{copy%/*}}"
  cat /proc/sys/$setting > $copy; mount --bind $copy /proc/sys/$setting
done
for folder in {" ".join(HIDDEN_FOLDERS)}; do
  mkdir -p {HIDDEN}$folder; mount --bind {HIDDEN}$folder $folder
done
ip link set lo up
ip link add {BRIDGE} type bridge
ip address add {NODE_IP}/24 dev {BRIDGE}
ip link set {BRIDGE} up
# Without a default route, a Service's address needs some route before it is translated.
ip route add {SERVICES} dev {BRIDGE} src {NODE_IP}
echo 1 > /proc/sys/net/ipv4/ip_forward
# Else iptables would not see what goes from pod to pod.
echo 1 > {BRIDGE_FILTER}
"""
"""Shell script that prepares new namespaces."""


def make_cell() -> None:
    """Create the cell; call ``remove_cell`` first.

    Raises Fatal if the kernel or the permissions do not allow it.
    """
    if not BRIDGE_FILTER.exists():
        _run("modprobe", "br_netfilter")
    RUN.mkdir()
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "headrace-cluster", str(RUN))
    _run("mount", "--make-private", str(RUN))  # a namespace's file must be on such a mount
    absent = [folder for folder in HIDDEN_FOLDERS if not Path(folder).is_dir()]
    MADE.write_text("\n".join(absent))
    own = (PKI, LOGS, HIDDEN, store(), kubelet_folder(), *cgroups())
    for folder in (*map(Path, HIDDEN_FOLDERS), *own):
        folder.mkdir(parents=True, exist_ok=True)
    for file in (NETWORK, MOUNTS):
        file.touch()
    new = ["unshare", f"--net={NETWORK}", f"--mount={MOUNTS}", "--propagation=slave"]
    _run(*new, "sh", "-euc", INSIDE)


def remove_cell() -> None:
    """End all processes in the cell and undo ``make_cell``, even if it was incomplete."""
    made = map(Path, MADE.read_text().split() if MADE.exists() else [])
    _kill_processes()
    # The bridge, rules, routes and mounts inside are deleted with the namespaces.
    for path in (NETWORK, MOUNTS, RUN):
        if _is_mount(path):
            _run("umount", "--lazy", str(path))
    for folder in (RUN, kubelet_folder()):
        _run("rm", "-rf", "--one-file-system", str(folder))
    for folder in (*made, *(folder for top in cgroups() for folder in _deepest_first(top))):
        with suppress(OSError):  # another process uses it now
            folder.rmdir()


def in_cell(*command: str | Path) -> list[str | Path]:
    """Return the command line that runs ``command`` in the namespaces of the node's components."""
    return ["nsenter", f"--net={NETWORK}", f"--mount={MOUNTS}", "--", *command]


def inside(check: Callable[[], bool]) -> bool:
    """Return the result of ``check``, run in a thread that joins the cell's network."""

    def run() -> bool:
        libc = ctypes.CDLL(None, use_errno=True)
        with NETWORK.open() as file:
            if libc.setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns", str(NETWORK))
        return check()

    with ThreadPoolExecutor(1, thread_name_prefix="headrace-cell") as thread:
        return thread.submit(run).result()


def _kill_processes() -> None:
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while left := _processes():
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise GaveUp(f"processes {sorted(left)} of the cluster do not end by kill -9")
        time.sleep(0.05)


def _processes() -> set[int]:
    """Return the processes in the node's cgroups or in one of its namespaces."""
    found = set[int]()
    for top in cgroups():
        for file in top.rglob("cgroup.procs"):
            with suppress(OSError):
                found |= {int(pid) for pid in file.read_text().split()}
    for file, kind in ((NETWORK, "net"), (MOUNTS, "mnt")):
        if _is_mount(file):
            mine = f"{kind}:[{file.stat().st_ino}]"
            for link in Path("/proc").glob(f"[0-9]*/ns/{kind}"):
                with suppress(OSError):
                    if str(link.readlink()) == mine:
                        found.add(int(link.parts[2]))
    return found


def _is_mount(path: Path) -> bool:
    """Return True for a mount point, even of a file, which ``Path.is_mount`` does not detect."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return str(path) in {line.split()[4] for line in mounts}


def _deepest_first(top: Path) -> list[Path]:
    return [Path(folder) for folder, _, _ in os.walk(top, topdown=False)]


def _run(*command: str) -> None:
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Fatal(f"`{' '.join(command[:4])}` failed: {done.stderr.strip()}")
