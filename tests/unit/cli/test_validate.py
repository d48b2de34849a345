"""Output and exit codes of ``headrace validate``."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.examples import one_in

from headrace.cli.main import main
from headrace.cli.screen.exits import Exit
from headrace.errors import InvalidSpec
from headrace.standalone.manifests import ManifestFiles

FLOW = """\
apiVersion: headrace.dev/v1beta1
kind: ReplicationFlow
metadata: {name: orders}
spec:
  source: {alias: east, bootstrapServers: east:9092}
  target: {alias: west, bootstrapServers: west:9092}
  topics: {include: [orders]}
"""


def test_mistakes_end_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW + "  tasks: {max: 0}\n  topic: orders\n")
    assert main(["validate", str(file)]) == Exit.USAGE.value == 3
    assert capsys.readouterr().out == (
        f"{file}:8: spec.tasks.max: got 0, must be at least 1\n"
        f"{file}:9: spec.topic: unknown field; did you mean spec.topics?\n"
    )


def test_valid_objects_end_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(f"{FLOW}---\napiVersion: v1\nkind: Secret\nmetadata: {{name: user}}\n")
    assert main(["validate", str(file)]) == Exit.OK.value == 0
    assert capsys.readouterr().out == ("ReplicationFlow orders: valid\nSecret user: valid\n")


@pytest.mark.parametrize(
    "spec",
    [
        {"delivery": {"mode": "ExactlyOnce", "commitIntervalMs": 100}},
        {
            "delivery": {"mode": "ExactlyOnce"},
            "recordFilter": {"headers": {"include": [{"name": "a"}]}},
        },
        {"headers": {"add": [{"name": "via", "value": ""}], "remove": ["via"]}},
        {"replicationPolicy": {"type": "Identity"}, "batchVerification": "Full"},
        {"startFrom": {"mode": "Timestamp", "timestamp": "2026-01-31T12:00:00Z"}},
        {"tasks": {"max": 3, "standbys": 1, "assignor": "cooperative", "movementBudget": 0.5}},
        {"discovery": {"topicsSeconds": 1, "groupsSeconds": 1}},
        {"state": "Stopped", "pausedPartitions": [{"topic": "orders"}]},
        {"heartbeats": {"enabled": False, "intervalSeconds": 5, "onSource": False}},
        {"topicConfigs": {"enabled": True, "intervalSeconds": 5, "exclude": ["a"]}},
        {"acls": {"enabled": True, "intervalSeconds": 5}},
        {
            "checkpoints": {"enabled": True, "intervalSeconds": 5, "applyToGroups": True},
            "groups": {"include": ["a"]},
            "offsetSyncs": {"location": "Source"},
        },
        {
            "drivers": {
                "replicas": 5,
                "leaseSeconds": 9,
                "resources": {"limits": {"cpu": 1}},
                "podTemplate": {"priorityClassName": "high"},
            }
        },
    ],
    ids="-".join,
)
def test_what_a_flow_may_ask_for(spec: dict[str, object], tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    manifest = yaml.safe_load(FLOW)
    file.write_text(yaml.safe_dump(manifest | {"spec": manifest["spec"] | spec}))
    assert main(["validate", str(file)]) == Exit.OK


TEST = """\
---
apiVersion: headrace.dev/v1beta1
kind: MirrorTest
metadata: {name: test}
spec:
  source: {alias: east, bootstrapServers: east:9092, authentication: {type: OAuthBearer}}
  target: {alias: west, bootstrapServers: west:9092}
"""
RESET = "metadata:\n  name: orders\n  annotations:\n    headrace.dev/reset: orders/3"
BAD = {
    "no YAML": ("a: [", ":1: is not YAML: "),
    "nothing in it": ("", ": holds no document"),
    "of no kind": (FLOW.replace("ReplicationFlow", "Flow"), ':2: kind: got "Flow", '),
    "a number": (FLOW + "  tasks: {max: 0}\n", ":8: spec.tasks.max: got 0, must be at least 1"),
    "unknown field": (FLOW + "  topic: orders\n", ":8: spec.topic: unknown field; did you mean "),
    "a rule between fields": (
        FLOW + "  startFrom: {mode: Timestamp}\n",
        ":8: spec.startFrom.timestamp: ",
    ),
    "one cluster": (FLOW.replace("west", "east"), ":6: spec.target"),
    "twice": (f"{FLOW}---\n{FLOW}", ':11: metadata.name: got "orders", is the name of another '),
    "tokens of nobody": (
        FLOW + TEST,
        ":13: spec.source.authentication.oauth: is required with type: OAuthBearer",
    ),
    "no such assignor": (
        FLOW + "  tasks:\n    max: 3\n    assignor: stikcy\n",
        ":10: spec.tasks.assignor: there is no assignor stikcy; known here are cooperative, round",
    ),
    "no such setting": (
        FLOW.replace("bootstrapServers: west:9092", "bootstrapServers: west, config: {linger: 5}"),
        ":6: ",
    ),
    "no reset": (
        FLOW.replace("metadata: {name: orders}", RESET),
        ":6: the annotation headrace.dev/reset resets nothing: 'orders/3' is not of the form",
    ),
}


@pytest.mark.parametrize(("text", "line"), BAD.values(), ids=BAD.keys())
def test_run_refuses_what_validate_refuses_with_the_same_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: str
) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(text)
    assert main(["validate", str(file)]) == Exit.USAGE
    validated = capsys.readouterr().out
    assert validated.startswith(f"{file}{line}")
    assert main(["run", str(file)]) == Exit.USAGE
    assert capsys.readouterr().err == f"headrace: {validated}"


@given(
    st.dictionaries(
        st.sampled_from(["delivery", "state", "startFrom", "onDataLoss", "tasks"]),
        st.sampled_from(["Batch", "Paused", "Fail", 3, "{mode: Latest}", "{max: 2}"]),
    )
)
@one_in(2)
def test_they_agree_on_whatever_is_written(fields: dict[str, object]) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "flow.yaml"
        file.write_text(FLOW + "".join(f"  {name}: {fields[name]}\n" for name in fields))
        validated = main(["validate", str(file)])
        try:
            ManifestFiles([file]).read()
        except InvalidSpec:
            assert validated == Exit.USAGE
        else:
            assert validated == Exit.OK


def test_no_file_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate"]) == Exit.USAGE
    assert "name a manifest: FILE or -f FILE" in capsys.readouterr().err


def keeping_names(name: str, source: str, target: str, include: str) -> str:
    return f"""\
---
apiVersion: headrace.dev/v1beta1
kind: ReplicationFlow
metadata: {{name: {name}}}
spec:
  source: {{alias: {source}, bootstrapServers: "{source}:9092"}}
  target: {{alias: {target}, bootstrapServers: "{target}:9092"}}
  topics: {{include: ["{include}"]}}
  replicationPolicy:
    type: Identity
"""


def renamed(name: str, source: str, target: str, include: str, renames: str) -> str:
    flow = keeping_names(name, source, target, include)
    return flow.replace("Identity\n", f"RenameMap\n    renames: {renames}\n")


STOP_ONE = "or stop one of the flows (spec.state: Stopped)\n"


def test_records_that_would_go_round_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "flows.yaml"
    there = renamed("there", "east", "west", "orders", "{orders: sales}")
    back = renamed("back", "west", "east", "sales", "{sales: orders}")
    file.write_text(there + back)
    assert main(["validate", str(file)]) == Exit.USAGE
    assert capsys.readouterr().out == (
        f"{file}:11: spec.replicationPolicy.renames: records of orders would go round: this "
        "flow copies it as "
        "sales, flow back copies that back as orders, which this flow copies again; exclude one of "
        f"them in spec.topics of its flow, {STOP_ONE}{file}:22: spec.replicationPolicy.renames: "
        "records of "
        "sales would go round: this flow copies it as orders, flow there copies that back as "
        "sales, which this flow copies again; exclude one of them in spec.topics of its flow, "
        f"{STOP_ONE}"
    )
    file.write_text(there + back.replace("sales: orders", "sales: bills"))
    assert main(["validate", str(file)]) == Exit.OK


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ("", True),
        ("state: Stopped", False),
        ("recordFilter: {headers: {include: [{name: a}]}}", False),
    ],
)
def test_a_flow_back_beside_the_one_that_still_runs_is_refused(
    more: str, refused: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "flows.yaml"
    there = keeping_names("there", "east", "west", "orders-.*")
    back = keeping_names("there-back", "west", "east", "orders-.*")
    file.write_text(f"{there}  {more}\n{back}")
    assert main(["validate", str(file)]) == (Exit.USAGE if refused else Exit.OK)
    sentence = (
        f"{file}:10: spec.replicationPolicy.type: records of orders-.* would go round: this "
        "flow copies it as "
        "orders-.*, flow there-back copies that back as orders-.*, which this flow copies again"
    )
    assert (sentence in capsys.readouterr().out) is refused


def test_a_policy_that_is_not_known_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW + "  replicationPolicy: {type: mine}\n")
    assert main(["validate", str(file)]) == Exit.USAGE
    sentence = f"{file}:8: spec.replicationPolicy.type: there is no policy mine; known here "
    assert capsys.readouterr().out.startswith(sentence)
