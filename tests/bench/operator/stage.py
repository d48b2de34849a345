"""An API server, an operator, simulated drivers; and windows through which the operator is seen."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.operator.figures import Call, Seen
from bench.operator.ledger import Ledger
from bench.operator.node import Node
from cluster.api_server import OwnApiServer, running_api_server
from support.operators import ACCOUNT, Operator, give_rights, running_operator

from headrace.errors import GaveUp
from headrace.k8s import Client, connect_by_file
from headrace.sandbox.processes import held_ports

NAMESPACE = "bench"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
CRDS = Path(__file__).parents[3] / "crds"
POLL_INTERVAL_S = 0.1
REPORT_INTERVAL_S = 5.0

Say = Callable[[str], None]
"""Hears how far it is."""

AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [USER]}, {"level": "None"}],
}
"""Audit policy for the operator's requests alone."""


@dataclass
class Stage:
    """Processes and clients of a benchmark, for one event loop."""

    api_server: OwnApiServer
    client: Client
    operator: Operator
    folder: Path
    ledger: Ledger
    node: Node
    say: Say

    @asynccontextmanager
    async def window(self) -> AsyncIterator[Callable[[], Seen]]:
        """Observe the operator during the block, and yield a function that returns the figures."""
        log, audit, began = len(self.operator.log), self._audit.stat().st_size, time.monotonic()
        lasted: list[float] = []

        def seen() -> Seen:
            samples = self._samples(began, began + lasted[0])
            took = re.findall(r"event=reconciled .*?took_ms=(\d+)", self.operator.log[log:])
            return Seen(
                seconds=lasted[0],
                calls=self._calls(audit),
                reconciles_ms=[int(ms) for ms in took],
                cpu_s=samples[-1][2] - samples[0][2],
                rss=[int(sample[1]) for sample in samples],
                answers_ms=[sample[3] for sample in samples],
            )

        yield seen
        lasted.append(time.monotonic() - began)

    async def until(self, is_so: Callable[[], bool], what: Callable[[], str]) -> None:
        """Wait without end, and say for what."""
        reported_s = time.monotonic()
        while not is_so():
            if self.operator.process.poll() is not None:
                last = self.operator.log.rstrip().rpartition("\n")[2]
                raise GaveUp(
                    f"the operator ended, the rest cannot be measured. Its last word: {last}"
                )
            if time.monotonic() - reported_s > REPORT_INTERVAL_S:
                reported_s = time.monotonic()
                self.say(what())
            await asyncio.sleep(POLL_INTERVAL_S)

    async def settled(self, units: int) -> None:
        """Wait until all units exist, and run on their assigned drivers."""
        ledger = self.ledger
        await self.until(
            lambda: len(ledger.holders) == units and not ledger.unsettled,
            lambda: f"{len(ledger.holders) - len(ledger.unsettled)} of {units} units run",
        )

    @property
    def _audit(self) -> Path:
        return self.folder / "audit.log"

    def _calls(self, begin: int) -> Counter[Call]:
        """Return the answered requests; of watches, only the opening ones."""
        calls: Counter[Call] = Counter()
        with self._audit.open() as lines:
            lines.seek(begin)
            for line in lines:
                event = json.loads(line)
                opened = event["stage"] == "ResponseStarted"
                if opened is (event["verb"] == "watch") and "objectRef" in event:
                    where = event["objectRef"]
                    parts = (where["resource"], where.get("subresource"))
                    calls[event["verb"], "/".join(filter(None, parts))] += 1
        return calls

    def _samples(self, begin_s: float, end_s: float) -> list[tuple[float, ...]]:
        lines = (self.folder / "probe.log").read_text().splitlines()
        samples = [tuple(map(float, line.split())) for line in lines if line.count(" ") == 3]
        return [sample for sample in samples if begin_s <= sample[0] <= end_s]


@asynccontextmanager
async def staged(folder: Path, say: Say) -> AsyncIterator[Stage]:
    """Yield a stage, and end all of it with the block."""
    folder.mkdir()
    policy = folder / "audit.json"
    policy.write_text(json.dumps(AUDIT))
    audit = folder / "audit.log"
    audit.touch()
    flags = (f"--audit-policy-file={policy}", f"--audit-log-path={audit}")
    os.environ["HEADRACE_LOG_LEVEL"] = "DEBUG"  # of the operator: it says each reconcile
    async with AsyncExitStack() as stack:
        say("the API server starts")
        server = stack.enter_context(running_api_server(folder / "api-server", flags))
        server.install_crds(CRDS)
        server.kubectl("create", "namespace", NAMESPACE)
        give_rights(server, NAMESPACE)
        (port,) = stack.enter_context(held_ports([None]))
        operator = stack.enter_context(running_operator(server, NAMESPACE, folder, port=port))
        stack.enter_context(_probed(operator, port, folder / "probe.log"))
        client = await connect_by_file("the benchmark", str(server.kubeconfig))
        stack.push_async_callback(client.close)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        node, ledger = Node(server, client, NAMESPACE, tasks), Ledger(client, NAMESPACE)
        copies = [tasks.create_task(copy.run()) for copy in (ledger.tasks, ledger.flows)]
        stage = Stage(server, client, operator, folder, ledger, node, say)
        await stage.until(lambda: "event=" in operator.log, lambda: "the operator starts")
        yield stage
        node.close()
        for task in copies:
            task.cancel()


@contextmanager
def _probed(operator: Operator, port: int, file: Path) -> Iterator[None]:
    file.touch()
    command = [sys.executable, "-m", "bench.operator.probe"]
    process = subprocess.Popen([*command, str(operator.process.pid), str(port), str(file)])
    try:
        yield
    finally:
        process.kill()
        process.wait()
