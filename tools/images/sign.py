"""Signs pushed images by their digest, and attests their contents: by cosign, with a key."""

import os
import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from machine import which

from headrace.errors import Fatal

KEY, FLAGS = "HEADRACE_KEY", "HEADRACE_COSIGN_FLAGS"
"""Environment variables that the Makefile exports."""

_STORES = ("awskms://", "azurekms://", "gcpkms://", "hashivault://", "k8s://", "env://", "pkcs11:")
"""Prefixes of cosign keys that are not files."""


@dataclass(frozen=True)
class Signer:
    """The program, the key, and flags of the user's for both of its commands."""

    cosign: str
    key: str
    flags: Sequence[str] = ()

    def sign(self, name: str) -> None:
        """Sign ``name``, which ends with a digest. cosign's own login counts: Docker's."""
        self._run("sign", name)

    def attest(self, name: str, spdx: Path) -> None:
        """Attest that ``spdx`` is the content of ``name``."""
        self._run("attest", "--type", "spdxjson", "--predicate", str(spdx), name)

    def _run(self, verb: str, *arguments: str) -> None:
        command = [self.cosign, verb, "--key", self.key, *self.flags, *arguments]
        if subprocess.run(command, check=False).returncode:
            raise Fatal(
                f"cosign {verb} failed; the reason is above. {arguments[-1]} is pushed, and not "
                f"{'signed' if verb == 'sign' else 'attested'}: push again, or run "
                f"`{shlex.join(command)}`"
            )


def find_signer(search: Callable[[str], str | None] = which) -> Signer | None:
    """Return the signer in the environment, or None. Raises Fatal before anything is pushed."""
    key = os.environ.get(KEY, "")
    if not key:
        return None
    if not key.startswith(_STORES):
        path = Path(key).expanduser()
        if not path.is_file():
            raise Fatal(
                f"nothing was pushed: KEY={key} is no file; make one with `cosign "
                "generate-key-pair`, or name one of a key store, such as awskms://"
            )
        key = str(path)
    cosign = search(os.environ.get("COSIGN") or "cosign")
    if cosign is None:
        raise Fatal(
            "nothing was pushed: cosign, which signs with KEY, is not on PATH; install it, or say "
            "where it is: make push COSIGN=/somewhere/cosign KEY=... REGISTRY=..."
        )
    return Signer(cosign, key, shlex.split(os.environ.get(FLAGS, "")))
