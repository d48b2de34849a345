"""The flags of the three scripts: a MirrorTest in a file, or else kafka-mirror-tester's."""

import argparse
from pathlib import Path

from pydantic import ValidationError

from headrace.api import load
from headrace.errors import InvalidSpec
from headrace.mirror_test import Run
from headrace_spark import mirror_tester_flags
from headrace_spark.live_metrics import Sink, as_events, at_port
from headrace_spark.mirror_tester_flags import Parser


def produce_parser() -> argparse.ArgumentParser:
    """Of ``produce.py``."""
    does = "send the load of a mirror test"
    if mirror_tester_flags.given():
        return mirror_tester_flags.produce_parser(does)
    return _with_metrics(_parser(does))


def probe_parser() -> argparse.ArgumentParser:
    """Of ``probe.py``."""
    does = "watch the load of a mirror test arrive on the target"
    if mirror_tester_flags.given():
        parser = mirror_tester_flags.consume_parser(does, 8000)
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
    """Of ``verify.py``."""
    does = "compare both clusters and judge the mirror between them"
    flags = mirror_tester_flags.given()
    parser = mirror_tester_flags.consume_parser(does) if flags else _parser(does)
    parser.add_argument(
        "--config-map",
        metavar="NAMESPACE/NAME",
        help="ConfigMap that gets report.json, instead of a page in the folder",
    )
    parser.add_argument(
        "--begin",
        type=Path,
        help="file to wait for, with Spark started, before the comparison begins",
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


def run_of(arguments: argparse.Namespace) -> Run:
    """The run that the flags describe; raises ``InvalidSpec``."""
    if arguments.test is None:
        return mirror_tester_flags.run(arguments)
    tests = [t for t in load([arguments.test]).tests if arguments.name in (None, t.metadata.name)]
    if len(tests) != 1:
        asked = f" named {arguments.name}" if arguments.name else ""
        raise InvalidSpec(
            f"{arguments.test} has {len(tests)} MirrorTests{asked}: say which with --name"
        )
    try:
        run = Run(name=arguments.run, test=tests[0], secrets=arguments.secrets)
    except ValidationError:
        raise InvalidSpec(f"--run {arguments.run}: must be 1 to 20 of a-z, 0-9 and '-'") from None
    _ = run.source  # a test that is not resolved is bad input for every job
    if run.test.spec.load.is_endless:
        raise InvalidSpec(
            f"{arguments.test}: spec.load.durationSeconds: 0 is for `headrace verify` and the "
            "operator, which send it in windows; a job sends one: say for how many seconds"
        )
    return run


def create_topics(run: Run, arguments: argparse.Namespace) -> None:
    """Those that the source lacks, where flags say how; else the job itself makes them."""
    if arguments.test is None:
        mirror_tester_flags.create_topics(run, arguments)


def sink(arguments: argparse.Namespace) -> Sink | None:
    """How the flags want metrics published, if at all."""
    if arguments.metrics_port is not None:
        return at_port(arguments.metrics_port)
    return as_events() if getattr(arguments, "metrics_events", False) else None


def _with_metrics(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "--metrics-port",
        type=int,
        help="serve metrics with kafka-mirror-tester's names there (none are served)",
    )
    parser.add_argument("--metrics-events", action="store_true", help="or print them as events")
    return parser


def _parser(does: str) -> argparse.ArgumentParser:
    parser = Parser(description=does)
    parser.add_argument(
        "--test", type=Path, required=True, help="file with a MirrorTest that has source and target"
    )
    parser.add_argument("--name", help="which MirrorTest, where the file has several")
    parser.add_argument("--run", required=True, help="name of this run, the same for all its jobs")
    parser.add_argument("--out", type=Path, required=True, help="folder of this run's documents")
    parser.add_argument("--secrets", type=Path, help="folder of Secrets, <name>/<key>")
    return parser
