"""``headrace check``, and the condition of a flow, on clusters with authorization."""

import itertools
import json
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from support.flows import FlowRun, manifest, spec
from support.groups import commit
from support.patience import WITHIN_S
from support.records import arrived, count, make_topic, numbered, produce, unique
from support.security import (
    GUARDED,
    Mounted,
    access,
    add_acls,
    by_certificate,
    by_password,
    grant,
    remove_acls,
)

from headrace.api import audits_topic, progress_topic
from headrace.cli.main import main
from headrace.errors import GaveUp, HeadraceError
from headrace.kafka import (
    AclAdmin,
    Admin,
    CompactedTopic,
    Producer,
    RightsAdmin,
    client_config,
)
from headrace.sandbox import Authority, ClusterPlan, Sandbox

pytestmark = pytest.mark.in_one_worker
WaitUntil = Callable[..., Any]
Document = dict[str, Any]

CLIENTS = Authority("clients")
"""Authority whose certificates the clusters accept."""

_KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.BROKER,  # as the client calls it
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Yield clusters ``east`` and ``west``, whose user has no permission."""
    home = tmp_path_factory.mktemp("sandboxes")
    trusted = home / "clients.pem"
    trusted.write_bytes(CLIENTS.certificate)
    properties = {**GUARDED, "ssl.truststore.location": str(trusted)}
    plans = [ClusterPlan(name, secure=True, properties=properties) for name in ("east", "west")]
    with Sandbox.start("checked", plans, home=home) as sandbox:
        yield sandbox


class Checked:
    """A flow of these clusters, checked repeatedly."""

    def __init__(
        self,
        sandbox: Sandbox,
        folder: Path,
        capsys: pytest.CaptureFixture[str],
        wait_until: WaitUntil,
    ) -> None:
        self.clusters = {"source": sandbox.cluster("east"), "target": sandbox.cluster("west")}
        self._admins = {
            name: AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            for name, cluster in self.clusters.items()
        }
        self.mounted = Mounted(folder / "mounted", sandbox.secrets)
        self.file = folder / "flow.yaml"
        self.granted: list[tuple[str, AclBinding]] = []
        self._capsys, self._wait_until = capsys, wait_until
        self.flow: Document = {
            "apiVersion": "headrace.dev/v1beta1",
            "kind": "ReplicationFlow",
            "metadata": {"name": "checked"},
            "spec": {
                "source": by_password(self.clusters["source"]),
                "target": by_password(self.clusters["target"]),
                "topics": {"include": []},
            },
        }

    def check(self) -> tuple[int, list[Document]]:
        """Exit code and findings."""
        self.file.write_text(yaml.safe_dump(self.flow))
        self._capsys.readouterr()
        secrets = ["--secrets", str(self.mounted.folder)]
        code = main(["check", str(self.file), *secrets, "-o", "json"])
        printed = self._capsys.readouterr()
        assert printed.out, printed.err
        (document,) = json.loads(printed.out)
        assert document["flow"] == "checked"
        return code, document["findings"]

    def wrong(self) -> list[Document]:
        """Return the findings that are not ok, and check the exit code for missing permissions."""
        code, findings = self.check()
        wrong = [one for one in findings if one["result"] != "ok"]
        assert code == any(one["result"] == "missing" for one in wrong), wrong
        return wrong

    def only(self, cluster: str, what: str) -> Document:
        """Return the only finding that is not ok; brokers apply a change after a moment."""

        def expected(wrong: list[Document]) -> bool:
            return [(one["cluster"], one["check"]) for one in wrong] == [(cluster, what)]

        (found,) = self._wait_until(self.wrong, until=expected)
        return found  # type: ignore[no-any-return]

    def nothing_is_wrong(self) -> None:
        """Wait until every finding is ok."""
        self._wait_until(self.wrong, until=lambda wrong: not wrong)

    def add(self, cluster: str, binding: AclBinding) -> None:
        add_acls(self._admins[cluster], binding)

    def remove(self, cluster: str, binding: AclBinding) -> None:
        remove_acls(self._admins[cluster], binding)

    def grant(self, cluster: str, acl: Document) -> None:
        """Grant exactly the ACL that a finding names."""
        for binding in _bindings(acl, AclPermissionType.ALLOW):
            self.add(cluster, binding)
            self.granted.append((cluster, binding))

    def grant_all(self, *clusters: str) -> list[Document]:
        """Grant until nothing is missing there, by default on both, and return the granted ACLs."""
        granted, there = [], clusters or tuple(self.clusters)
        while wrong := [one for one in self.wrong() if one["acl"] and one["cluster"] in there]:
            for one in wrong:
                self.grant(one["cluster"], one["acl"])
            granted += wrong
            assert len(granted) < 100, wrong
            self._wait_until(
                self.wrong, until=lambda now, wrong=wrong: not any(one in now for one in wrong)
            )
        return granted


def line(found: Document) -> tuple[str, str, str]:
    """Return the subject of a finding, and the command that corrects it."""
    return found["cluster"], found["check"], found["command"]


def _holds(wanted: object, found: list[object]) -> bool:
    return wanted in found


def _all_in(texts: Collection[str], printed: str) -> bool:
    return all(one in printed for one in texts)


def _bindings(acl: Document, permission: AclPermissionType) -> list[AclBinding]:
    return [
        AclBinding(
            _KINDS[acl["resourceType"]],
            name,
            ResourcePatternType[acl["patternType"].upper()],
            acl["principal"],
            "*",
            AclOperation[_upper(acl["operation"])],
            permission,
        )
        for name in acl["names"]
    ]


def _upper(operation: str) -> str:
    return {"DescribeConfigs": "DESCRIBE_CONFIGS", "AlterConfigs": "ALTER_CONFIGS"}.get(
        operation, operation.upper()
    )


@pytest.fixture
def checked(
    locked: Sandbox,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    wait_until: WaitUntil,
) -> Iterator[Checked]:
    made = Checked(locked, tmp_path, capsys, wait_until)
    yield made
    for cluster, binding in made.granted:
        made.remove(cluster, binding)


def test_what_it_names_is_what_a_flow_needs_and_each_right_alone_is_noticed(
    checked: Checked, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(checked.clusters["source"]), unique("needed"), 2)
    produce(spec(checked.clusters["source"]), topic, numbered(100, 2))
    group = unique("readers")
    commit(checked.clusters["source"], group, topic, {0: 5})
    fields = checked.flow["spec"]
    fields["topics"]["include"], fields["groups"] = [topic], {"include": [group]}
    fields |= {"checkpoints": {"applyToGroups": True}}

    needed = checked.grant_all()
    checked.nothing_is_wrong()
    (disk,) = [one for one in checked.check()[1] if one["check"] == "free disk"]
    assert "MB to copy, counted with one replica" in disk["message"]
    disks = RightsAdmin(spec(checked.clusters["source"])).broker_disks({topic: 2}).values()
    assert [bool(one.free_bytes) for one in disks] == [True]
    assert [size > 0 for one in disks for size in one.sizes_bytes.values()] == [True, True]
    options = ("--secrets", str(checked.mounted.folder))
    with FlowRun(tmp_path, [checked.flow], *options) as run:
        copies = spec(checked.clusters["target"])
        wait_until(lambda: arrived(copies, f"east.{topic}"), until=partial(eq, 100))
        wait_until(run.ready)
        assert run.condition("RequirementsMissing") == {}
        assert "not synchronized" not in str(run.condition("Ready"))
    assert [one for one in checked.wrong() if one["acl"]] == [], "topics are there now"

    for one in needed:
        denied = _bindings(one["acl"], AclPermissionType.DENY)
        for binding in denied:
            checked.add(one["cluster"], binding)
        if one["check"] != "Create":  # existing topics need not be created
            wait_until(lambda: list(map(line, checked.wrong())), until=partial(_holds, line(one)))
        for binding in denied:
            checked.remove(one["cluster"], binding)
    commands = {one["command"] for one in needed}
    servers = checked.clusters["target"].sasl_servers
    assert (
        f"kafka-acls.sh --bootstrap-server {servers} --command-config admin.properties --add "
        "--allow-principal User:headrace --operation Write --topic east. "
        "--resource-pattern-type prefixed"
    ) in commands


def test_a_flow_that_lacks_rights_says_which_before_it_starts(
    checked: Checked, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic = make_topic(spec(checked.clusters["source"]), unique("shut"), 1)
    checked.flow["spec"]["topics"]["include"] = [topic]
    options = ("--secrets", str(checked.mounted.folder))
    with FlowRun(tmp_path, [checked.flow], *options) as run:
        needed = "Read: User:headrace may not; needed to read the records"
        said = (
            f"source topics heartbeats, {topic}: {needed}",
            "target topic mm2-headrace-progress.east.internal: Write: User:headrace may not",
        )
        wait_until(
            lambda: run.condition("RequirementsMissing").get("message", ""),
            until=lambda message: all(one in message for one in said),
        )


def test_an_audit_names_the_permission_that_it_lacks(
    checked: Checked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = checked.clusters["source"], checked.clusters["target"]
    topics = [unique("audited"), unique("audited")]
    for cluster in (source, target):
        for topic in topics:
            make_topic(spec(cluster), topic, 1)
            grant(cluster, topic, "describe")
    clusters = {name: by_password(cluster) for name, cluster in checked.clusters.items()}
    audit = {"targetTopic": "{topic}", "audit": {"topics": topics}}
    test: Document = {"apiVersion": "headrace.dev/v1beta1", "kind": "MirrorTest"}
    test |= {"metadata": {"name": "audit"}, "spec": {**clusters, **audit}}
    file = tmp_path / "audit.yaml"
    file.write_text(yaml.safe_dump(test))

    def lacks(sentence: str) -> None:
        assert main(["verify", str(file), "--secrets", str(checked.mounted.folder)]) == 2
        assert f"the user of {sentence}: it cannot be compared; allow it" in capsys.readouterr().err

    first, second = sorted(topics)
    grant(source, first, "read", "describe_configs")
    lacks(f"east may not Read topic {second}")
    grant(source, second, "read")
    lacks(f"east may not DescribeConfigs topic {second}")
    grant(source, second, "describe_configs")
    lacks(f"west may not Read topic {first}, {second}")

    # The frontier of audits with startFrom.mode: LastAudit.
    name, transactional_id = audits_topic(unique("from")), unique("headrace-audits")
    user = access(by_password(target), checked.mounted.folder)
    frontier = CompactedTopic(user, name, transactional_id)
    with pytest.raises(HeadraceError, match=f"create topic {name}"):
        frontier.prepare()
    make_topic(spec(target), name, 1, **{"cleanup.policy": "compact"})
    grant(target, name, "read")
    with pytest.raises(GaveUp, match=f"the user of west may not Write topic {name}: allow it"):
        frontier.prepare()
    grant(target, name, "write")
    with pytest.raises(GaveUp, match=f"may not Write transactional id {transactional_id}"):
        frontier.prepare()
    grant(target, transactional_id, "write", on="transactional_id")
    frontier.prepare()
    assert frontier.replace(lambda known: not known, {b"key": b"value"})
    assert frontier.read() == {b"key": b"value"}
    assert not frontier.replace(lambda known: not known, {b"key": b"other"})
    assert frontier.read() == {b"key": b"value"}


def test_a_target_that_may_only_be_read_is_named_with_each_right_that_it_lacks(
    checked: Checked, tmp_path: Path, wait_until: WaitUntil
) -> None:
    topic, alias = make_topic(spec(checked.clusters["source"]), unique("reader"), 1), unique("from")
    checked.flow["spec"]["source"]["alias"] = alias  # other tests have made the topics of east
    checked.flow["spec"]["topics"]["include"] = [topic]
    checked.grant_all("source")
    everything = {"resourceType": "topic", "names": ["*"], "patternType": "literal"}
    checked.grant("target", {**everything, "principal": "User:headrace", "operation": "Read"})

    def missing() -> set[tuple[str, str]]:
        found = [one for one in checked.wrong() if one["result"] == "missing"]
        return {(one["cluster"], one["check"]) for one in found}

    beyond = {("target", right) for right in ("Create", "Write", "DescribeConfigs", "AlterConfigs")}
    wait_until(missing, until=partial(eq, beyond))
    with FlowRun(tmp_path, [checked.flow], "--secrets", str(checked.mounted.folder)) as run:
        said = (
            f"target topics {alias}.heartbeats, {alias}.{topic}: Write: User:headrace may not",
            f"target topic mm2-headrace-progress.{alias}.internal: Create: User:headrace may not",
        )
        wait_until(
            lambda: run.condition("RequirementsMissing").get("message", ""),
            until=partial(_all_in, said),
        )
        why = (
            f"could not create topic {progress_topic(alias)} with 8 partitions on west",
            "TOPIC_AUTHORIZATION_FAILED",
            "grant the principal permissions on this topic",
        )
        wait_until(lambda: run.condition("Stalled").get("message", ""), until=partial(_all_in, why))
        assert not run.ready()


def test_settings_that_keep_a_copy_from_being_one(checked: Checked) -> None:
    source, target = (spec(checked.clusters[one]) for one in ("source", "target"))
    topic = make_topic(source, unique("unfit"), 1, **{"max.message.bytes": "5000000"})
    copy = make_topic(target, f"east.{topic}", 1)
    fields = checked.flow["spec"]
    fields["topics"]["include"] = [topic]
    fields |= {"checkpoints": {"enabled": False}, "heartbeats": {"enabled": False}}
    checked.grant_all()
    checked.nothing_is_wrong()  # the flow raises it itself

    fields["topicConfigs"] = {"enabled": False}
    found = checked.only("target", "max.message.bytes")
    assert found["message"] == (
        "1048588 is less than the source's 5000000: larger records are refused"
    )
    assert found["command"].endswith(
        f"--alter --entity-type topics --entity-name {copy} --add-config max.message.bytes=5000000"
    )
    Admin(target).change_topic_configs(
        {copy: {"max.message.bytes": "5000000", "min.insync.replicas": "2"}}
    )
    found = checked.only("target", "min.insync.replicas")
    assert (found["result"], "1 replicas in sync of 1" in found["message"]) == ("missing", True)

    Admin(target).change_topic_configs({copy: {"min.insync.replicas": "1"}})
    produce(target, copy, numbered(10, 1))
    found = checked.only("target", "data")
    assert (found["result"], found["subject"]) == ("warning", f"topic {copy}")
    assert "by `headrace flow import mm2 checked` before the flow starts" in found["message"]

    fields["topics"]["include"] = [make_topic(source, unique("new"), 1)]
    fields["target"]["replicationFactor"] = 3
    checked.grant_all()
    found = checked.only("target", "Create")
    assert "ask for no more replicas than there are brokers" in found["message"]


def test_names_that_are_never_copied(checked: Checked) -> None:
    topic = make_topic(spec(checked.clusters["source"]), unique("mm2-own") + ".internal", 1)
    fields = checked.flow["spec"]
    fields["topics"] = {"include": [topic, "absent.*"], "exclude": ["__.*"]}
    fields["checkpoints"] = {"enabled": False}
    checked.grant_all()
    own, absent = checked.wrong()
    assert (own["check"], own["subject"]) == ("name", f"topic {topic}"), "it need not be seen"
    assert "never copied: by its name it is a cluster's own" in own["message"]
    assert (absent["check"], absent["subject"]) == ("name", "spec.topics.include absent.*")


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("password", "check spec.source.authentication: type ScramSha512, username headrace"),
        ("authority", "must hold the authority that signed it"),
        ("host", "certificate is not valid for 'localhost'"),
        ("address", "refuses connections"),
        ("expired", "client certificate in Secret east-client: it has expired; renew it"),
    ],
)
def test_what_keeps_it_out_is_a_finding(checked: Checked, wrong: str, sentence: str) -> None:
    source = checked.flow["spec"]["source"]
    checked.flow["spec"]["topics"]["include"] = ["orders"]
    match wrong:
        case "password":
            checked.mounted.write("east-user", {"password": b"guessed"})
        case "authority":
            checked.mounted.write("east-ca", {"ca.crt": Authority("other").certificate})
        case "host":
            servers = source["bootstrapServers"].replace("127.0.0.1", "localhost")
            source["bootstrapServers"] = servers
        case "address":
            source["bootstrapServers"] = "127.0.0.1:1"
        case "expired":
            certificate, key = CLIENTS.issue("headrace", valid=timedelta(minutes=-5))
            checked.mounted.write("east-client", {"tls.crt": certificate, "tls.key": key})
            checked.flow["spec"]["source"] = by_certificate(checked.clusters["source"])
    found = checked.only("source", "connection")
    assert sentence in found["message"]
    assert found["result"] == "missing"


def test_acls_of_copies_follow_their_sources_and_no_others_are_touched(
    checked: Checked, tmp_path: Path, wait_until: WaitUntil
) -> None:
    source, target = checked.clusters["source"], checked.clusters["target"]
    topic = make_topic(spec(source), unique("ruled"), 1)
    copy = make_topic(spec(target), f"east.{topic}", 1)

    def acl(name: str, who: str, operation: str = "Read", pattern: str = "literal") -> Document:
        return {
            "resourceType": "topic",
            "names": [name],
            "patternType": pattern,
            "principal": f"User:{who}",
            "operation": operation,
        }

    def there() -> set[tuple[str, str, str]]:
        found = AclAdmin(spec(target)).topic_acls()
        return {
            (one["principal"], one["operation"], one["permission"])
            for one in found
            if (one["topic"], one["pattern"]) == (copy, "Literal")
        }

    checked.grant("target", acl(copy, "own"))
    for who, operation in (("ann", "Read"), ("carol", "All"), ("writer", "Write"), ("*", "Read")):
        checked.grant("source", acl(topic, who, operation))
    (denied,) = _bindings(acl(topic[:-1], "bob", "Read", "prefixed"), AclPermissionType.DENY)
    checked.add("source", denied)
    kept = {("User:own", "Read", "Allow")}
    wanted = {(f"User:{who}", "Read", "Allow") for who in ("ann", "carol", "*")}
    wanted |= {("User:bob", "Read", "Deny"), *kept}
    flow = manifest("ruled", source, target, topic, acls={"enabled": True, "intervalSeconds": 1})
    with FlowRun(tmp_path, [flow]) as run:
        wait_until(there, until=partial(eq, wanted))
        wait_until(run.ready)
        assert "not synchronized" not in str(run.condition("Ready"))
        checked.remove("source", denied)
        (ann,) = _bindings(acl(topic, "ann"), AclPermissionType.ALLOW)
        checked.remove("source", ann)
        left = wanted - {("User:ann", "Read", "Allow"), ("User:bob", "Read", "Deny")}
        wait_until(there, until=partial(eq, left))
    for _, binding in [one for one in checked.granted if one[0] == "source"]:
        checked.remove("source", binding)
    with FlowRun(tmp_path, [flow]):
        wait_until(there, until=partial(eq, kept))


def test_rights_that_are_taken_while_a_flow_runs_are_named_until_they_are_back(
    checked: Checked, tmp_path: Path, wait_until: WaitUntil
) -> None:
    source, target = (spec(checked.clusters[one]) for one in ("source", "target"))
    topic = make_topic(source, unique("taken"), 1)
    copy = f"east.{topic}"
    fields = checked.flow["spec"]
    fields["topics"]["include"] = [topic]
    fields |= {"acls": {"enabled": True, "intervalSeconds": 1}, "checkpoints": {"enabled": False}}
    needed = checked.grant_all()
    rights = {(one["cluster"], one["check"]): one["acl"] for one in needed}
    assert ("source", "Describe") in rights, list(rights)

    def said() -> str:
        units = run.units("SourceConnector")
        conditions = [run.describe(one["name"])["status"]["conditions"] for one in units]
        return "".join(one["message"] for found in conditions for one in found)

    def acls() -> list[Document]:
        return [one for one in AclAdmin(target).topic_acls() if one["topic"] == copy]

    with FlowRun(tmp_path, [checked.flow], "--secrets", str(checked.mounted.folder)) as run:
        wait_until(run.ready)
        kept = wait_until(acls)
        for cluster, operation in (("source", "Describe"), ("target", "Describe")):
            acl = rights[cluster, operation]
            assert acl["resourceType"] == "cluster"
            (denied,) = _bindings(acl, AclPermissionType.DENY)
            checked.add(cluster, denied)
            said_of_acls = (
                f"ACLs not synchronized: could not list the ACLs of {fields[cluster]['alias']}",
                f"User:headrace has no {operation} on it (kafka-acls.sh --add --allow-principal "
                f"User:headrace --operation {operation} --cluster)",
            )
            wait_until(said, until=partial(_all_in, said_of_acls))
            wait_until(run.ready)  # records are still copied
            assert acls() == kept, "a list that is refused is no empty one"
            checked.remove(cluster, denied)
            wait_until(said, until=lambda said: "not synchronized" not in said)
        produce(source, topic, numbered(10, 1))
        wait_until(lambda: arrived(target, copy), until=partial(eq, 10))
        acl = rights["target", "Write"] | {"names": [copy], "patternType": "literal"}
        (denied,) = _bindings(acl | {"resourceType": "topic"}, AclPermissionType.DENY)
        checked.add("target", denied)
        words = (copy, "TOPIC_AUTHORIZATION_FAILED", "grant the principal permissions on")
        numbers = itertools.count(10)

        def ready_after_a_record() -> dict[str, Any]:
            produce(source, topic, numbered(1, 1, first=next(numbers)))
            return run.condition("Ready")

        wait_until(
            ready_after_a_record,
            until=lambda ready: (
                ready.get("status") == "False" and _all_in(words, ready.get("message", ""))
            ),
        )
        wait_until(lambda: [one for one in run.units() if one["phase"] == "Failed"])
        checked.remove("target", denied)
        sent = next(numbers)
        wait_until(lambda: arrived(target, copy), until=partial(eq, sent))
        wait_until(run.ready)
    assert "GROUP_AUTHORIZATION_FAILED" not in run.output, "nobody needs rights on a group here"


def test_a_fail_over_denies_writes_to_the_source_until_it_is_aborted(
    checked: Checked, tmp_path: Path, wait_until: WaitUntil, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = checked.clusters["source"], checked.clusters["target"]
    name = unique("closed")
    topic = make_topic(spec(source), name, 1)
    rights = {"resourceType": "topic", "patternType": "literal", "principal": "User:headrace"}
    checked.grant("source", rights | {"names": [topic], "operation": "Write"})
    progress = "mm2-headrace-progress.east.internal"
    checked.grant("target", rights | {"names": [progress], "operation": "Read"})
    user = access(by_password(source), checked.mounted.folder)

    def may_write() -> bool:
        errors = list[object]()
        producer = Producer(client_config(user))
        producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(WITHIN_S) == 0
        return [error is None for error in errors] == [True]

    def fail_over(*options: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["failover", *options])
        return code, "".join(capsys.readouterr())

    wait_until(may_write)
    with FlowRun(tmp_path, [manifest(name, source, target, topic)]) as run:
        wait_until(lambda: count(spec(target), f"east.{topic}"))
        # Run it as a user without permission to alter the cluster: nothing is changed.
        checked.flow["spec"]["topics"]["include"] = [topic]
        checked.file.write_text(yaml.safe_dump(checked.flow))
        manifests = ("-f", str(checked.file), "--secrets", str(checked.mounted.folder))
        quick = ("--deny-writes", "--quiet-seconds", "1")
        denials = "mm2-headrace-denials.east.internal"
        needs = "It needs the permissions Describe and Alter"

        def refused_for(why: str) -> None:
            wait_until(lambda: fail_over(*manifests, *quick), until=lambda said: why in said[1])

        code, printed = fail_over(*manifests, *quick)
        assert (code, _all_in((needs, "has no Describe on it"), printed)) == (1, True), printed
        cluster = rights | {"resourceType": "cluster", "names": ["kafka-cluster"]}
        checked.grant("source", cluster | {"operation": "Describe"})
        refused_for(f"describe topic {denials}")
        code, printed = fail_over(*manifests, "--abort")
        assert (code, "is not failed over: nothing is changed" in printed) == (0, True), printed
        checked.grant("target", rights | {"names": [denials], "operation": "All"})
        refused_for("has no Alter on it")
        assert may_write()

        code, printed = fail_over(run.name, *quick)
        assert (code, f"{name} is failed over" in printed) == (0, True), printed
        wait_until(may_write, until=lambda may: not may)
        assert fail_over(run.name, "--abort")[0] == 0
        wait_until(may_write)
