"""Flags of the three scripts, which accept a MirrorTest file or kafka-mirror-tester's flags.

The flags have the names and meanings of kafka-mirror-tester's ``produce`` and ``consume``.
``docs/mirror-test-formats.md`` lists them, and the flags that headrace adds because a manifest and
a verdict cover both clusters.
"""

import argparse
import sys
from pathlib import Path
from typing import Never

from pydantic import ValidationError

from headrace.api import MirrorTest, Partitioning, load
from headrace.errors import InvalidSpec
from headrace.kafka import Admin
from headrace.mirror_test import MirrorTestRun
from headrace_spark.live_metrics import Sink, as_events, at_port

USAGE = 3
_FIRST = "--topics"
_FLAGS = {
    "names": _FIRST,
    "partitions": "--num-partitions",
    "durationSeconds": "--seconds",
    "messagesPerSecond": "--throughput",
    "messageSizeBytes": "--message-size",
    "targetTopic": "--target-topic",
    "settleSeconds": "--settle-seconds",
    "name": "--id",
}
"""Flags by the field of a MirrorTest that they set."""


class Parser(argparse.ArgumentParser):
    """Argument parser that exits with the code for wrong usage."""

    def error(self, message: str) -> Never:
        """Print the usage and the message, and exit with ``USAGE``."""
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def has_mirror_tester_flags() -> bool:
    """Return True if the command line has kafka-mirror-tester's flags instead of ``--test``."""
    return any(word.split("=")[0] == _FIRST for word in sys.argv[1:])


def mirror_tester_produce_parser(does: str) -> argparse.ArgumentParser:
    parser = _mirror_tester_parser(does)
    parser.add_argument(
        "--throughput", type=int, required=True, help="messages a second to each topic"
    )
    parser.add_argument(
        "--message-size",
        type=int,
        required=True,
        help="bytes of a message's value, including id;sequence;timestamp;",
    )
    parser.add_argument(
        "--target-bootstrap-servers",
        help="brokers of the target, needed if its topics contain records already",
    )
    parser.add_argument(
        "--seconds",
        type=int,
        default=0,
        help="seconds of load; 0: until --out contains a file end-load (0)",
    )
    parser.add_argument("--metrics-port", type=int, default=8001, help="port of metrics (8001)")
    return parser


def mirror_tester_consume_parser(
    does: str, metrics_port: int | None = None
) -> argparse.ArgumentParser:
    parser = _mirror_tester_parser(does)
    parser.add_argument("--source-bootstrap-servers", required=True, help="brokers of the source")
    parser.add_argument(
        "--consumer-group",
        help="accepted and not used: no group is joined, so no rebalance hides a message",
    )
    if metrics_port is not None:
        parser.add_argument(
            "--metrics-port",
            type=int,
            default=metrics_port,
            help=f"port of metrics ({metrics_port})",
        )
    parser.set_defaults(throughput=None, message_size=None, seconds=0)
    return parser


def _mirror_tester_parser(does: str) -> argparse.ArgumentParser:
    parser = Parser(description=does)
    parser.add_argument("--id", required=True, help="id of the producer")
    parser.add_argument(_FIRST, required=True, help="topics of the source, separated by commas")
    parser.add_argument("--bootstrap-servers", "--bootstrap-server", required=True)
    parser.add_argument(
        "--use-message-headers",
        nargs="?",
        type=_flag,
        const=True,
        default=False,
        help="send id and sequence also as headers, not only in the value",
    )
    parser.add_argument(
        "--num-partitions", type=int, default=1, help="partitions of new topics (1)"
    )
    parser.add_argument(
        "--num-replicas", type=int, default=-1, help="replicas of new topics (brokers' default)"
    )
    parser.add_argument(
        "--retention", type=int, help="retention of new topics in ms (brokers' default)"
    )
    parser.add_argument("--target-topic", default="{topic}", help="name of target topics")
    parser.add_argument(
        "--partitioning",
        choices=[choice.value for choice in Partitioning],
        default=Partitioning.PRESERVED.value,
    )
    parser.add_argument("--settle-seconds", type=int, default=120)
    parser.add_argument(
        "--out", type=Path, help="folder of the run's documents (headrace-reports/ID)"
    )
    parser.set_defaults(test=None)
    return parser


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"must be true or false, not {text}")
    return text.lower() == "true"


def mirror_tester_run(arguments: argparse.Namespace) -> MirrorTestRun:
    """Return the run that the flags describe.

    Raise ``InvalidSpec``, with the name of the flag, if a value is invalid.
    """
    arguments.out = arguments.out or Path("headrace-reports") / arguments.id
    if is_of_load := arguments.throughput is not None:
        source, target = arguments.bootstrap_servers, arguments.target_bootstrap_servers
    else:
        source, target = arguments.source_bootstrap_servers, arguments.bootstrap_servers
    load = {
        "names": [topic.strip() for topic in arguments.topics.split(",")],
        "partitions": arguments.num_partitions,
        "producers": 1,
        "durationSeconds": arguments.seconds,
        "messageFormat": "Headers" if arguments.use_message_headers else "Body",
        "messagesPerSecond": arguments.throughput,
        "messageSizeBytes": arguments.message_size,
    }
    test = {
        "metadata": {"name": "mirror-tester"},
        "spec": {
            "source": {"alias": "source", "bootstrapServers": source},
            "target": {"alias": "target", "bootstrapServers": target or _UNKNOWN},
            "targetTopic": arguments.target_topic,
            "partitioning": arguments.partitioning,
            "settleSeconds": arguments.settle_seconds,
            "load": {field: value for field, value in load.items() if value is not None},
        },
    }
    try:
        run = MirrorTestRun(name=arguments.id, test=MirrorTest.model_validate(test))
    except ValidationError as error:
        raise InvalidSpec("; ".join(_sentences(error))) from None
    return run.without_target() if is_of_load and target is None else run


_UNKNOWN = "unknown:9092"
"""Address for the validation of a test whose load is sent without knowledge of the target."""


def _sentences(error: ValidationError) -> list[str]:
    found = []
    for problem in error.errors():
        path = [str(part) for part in problem["loc"]]
        flag = next((_FLAGS[part] for part in reversed(path) if part in _FLAGS), ".".join(path))
        if "bootstrapServers" in path:
            flag = f"bootstrap servers of the {path[-2]}"
        if path == ["name"]:
            found.append(f"{flag}: must be 1 to 20 of a-z, 0-9 and '-'")
        else:
            found.append(f"{flag}: {problem['msg'].removeprefix('Value error, ')}")
    return found


def create_mirror_tester_topics(run: MirrorTestRun, arguments: argparse.Namespace) -> None:
    """Create topics that the source lacks, with the given replicas and retention."""
    admin = Admin(run.source)
    config = {} if arguments.retention is None else {"retention.ms": str(arguments.retention)}
    for name in run.first_topics.keys() - admin.topics().keys():
        admin.create_topic(name, run.test.spec.load.partitions, arguments.num_replicas, config)


def produce_parser() -> argparse.ArgumentParser:
    does = "send the load of a mirror test"
    if has_mirror_tester_flags():
        return mirror_tester_produce_parser(does)
    return _with_metrics(_parser(does))


def probe_parser() -> argparse.ArgumentParser:
    does = "watch the load of a mirror test arrive on the target"
    if has_mirror_tester_flags():
        parser = mirror_tester_consume_parser(does, 8000)
    else:
        parser = _with_metrics(_parser(does))
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        help="seconds to wait for the target's topics, settleSeconds at least (60)",
    )
    return parser


def verify_parser() -> argparse.ArgumentParser:
    does = "compare both clusters and judge the mirror between them"
    flags = has_mirror_tester_flags()
    parser = mirror_tester_consume_parser(does) if flags else _parser(does)
    parser.add_argument(
        "--config-map",
        metavar="NAMESPACE/NAME",
        help="ConfigMap for report.json, instead of a page in the folder",
    )
    parser.add_argument(
        "--begin",
        type=Path,
        help="file to wait for after Spark has started, before the comparison begins",
    )
    parser.add_argument(
        "--chaos",
        type=Path,
        help="file with the steps of chaos, whose outcome is in the journal",
    )
    parser.add_argument(
        "--rehearsal",
        type=Path,
        help="file with the plan of a rehearsed fail-over, whose outcome is in the journal",
    )
    return parser


def run_of(arguments: argparse.Namespace) -> MirrorTestRun:
    """Return the run that the flags describe. Raise ``InvalidSpec`` if they are invalid."""
    if arguments.test is None:
        return mirror_tester_run(arguments)
    tests = [t for t in load([arguments.test]).tests if arguments.name in (None, t.metadata.name)]
    if len(tests) != 1:
        asked = f" named {arguments.name}" if arguments.name else ""
        raise InvalidSpec(
            f"{arguments.test} has {len(tests)} MirrorTests{asked}: select one with --name"
        )
    try:
        run = MirrorTestRun(name=arguments.run, test=tests[0], secrets=arguments.secrets)
    except ValidationError:
        raise InvalidSpec(f"--run {arguments.run}: must be 1 to 20 of a-z, 0-9 and '-'") from None
    _ = run.source  # raises if the test does not contain its clusters
    if run.test.spec.load.is_endless:
        raise InvalidSpec(
            f"{arguments.test}: spec.load.durationSeconds: 0 is only for `headrace verify` and "
            "the operator, which send the load in windows: set a duration for a single job"
        )
    return run


def create_topics(run: MirrorTestRun, arguments: argparse.Namespace) -> None:
    """Create topics that the source lacks, if kafka-mirror-tester's flags are used.

    Otherwise do nothing, because ``messages.prepare`` creates them later.
    """
    if arguments.test is None:
        create_mirror_tester_topics(run, arguments)


def sink(arguments: argparse.Namespace) -> Sink | None:
    """Return the sink for metrics that the flags select, or None."""
    if arguments.metrics_port is not None:
        return at_port(arguments.metrics_port)
    return as_events() if getattr(arguments, "metrics_events", False) else None


def _with_metrics(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "--metrics-port",
        type=int,
        help="port of metrics with kafka-mirror-tester's names (none are served)",
    )
    parser.add_argument("--metrics-events", action="store_true", help="print metrics as events")
    return parser


def _parser(does: str) -> argparse.ArgumentParser:
    parser = Parser(description=does)
    parser.add_argument(
        "--test", type=Path, required=True, help="file with a MirrorTest that has source and target"
    )
    parser.add_argument("--name", help="name of the MirrorTest, if the file has several")
    parser.add_argument("--run", required=True, help="name of this run, the same for all its jobs")
    parser.add_argument("--out", type=Path, required=True, help="folder of this run's documents")
    parser.add_argument("--secrets", type=Path, help="folder of Secrets, with files <name>/<key>")
    return parser
