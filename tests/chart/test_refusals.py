"""A wrong value is refused, by its name."""

import re

import pytest
from support.helm import HelmError, render


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("crds.install=true", "at '/crds': additional properties 'install' not allowed"),
        ("replicaCount=2", "at '': additional properties 'replicaCount' not allowed"),
        ("replicas=two", "at '/replicas': got string, want integer"),
        ("replicas=-1", "at '/replicas': minimum: got -1, want 0"),
        ("scope=Everywhere", "at '/scope': value must be one of 'Cluster', 'Namespace'"),
        ("watchNamespaces[0]=A", "at '/watchNamespaces/0': 'A' does not match pattern"),
        ("image.repository=reg/a:1", "at '/image/repository': 'reg/a:1' does not match pattern"),
        (
            "image.repository=",
            "image.repository: is required, because no image of headrace is published; name your",
        ),
        ("image.registry=a b", "at '/image/registry': 'a b' does not match pattern"),
        ("global.imageRegistry=a//b", "at '/global/imageRegistry': 'a//b' does not match pattern"),
        ("podSecurityContext.runAsNonRoot=false", "at '/podSecurityContext': additional prop"),
        ("securityContext.privileged=true", "at '/securityContext': additional properties 'pri"),
        ("image.digest=abc", "at '/image/digest': 'abc' does not match pattern"),
        ("image.tag=1", "at '/image/tag': got number, want string"),
        ("image.pullPolicy=Maybe", "at '/image/pullPolicy': value must be one of 'Always', "),
        ("driver.image=a b", "at '/driver/image': 'a b' does not match pattern"),
        ("driver.resources.limits.cpu=two", "at '/driver/resources/limits/cpu': 'two' does not"),
        ("driver.podTemplate.nodeSelektor.a=b", "at '/driver/podTemplate': additional properties"),
        (
            "driver.env[0].valueOf.a=b",
            "at '/driver/env/0': additional properties 'valueOf' not",
        ),
        ("spark.driver.memory=1Gi", "at '/spark/driver': additional properties 'memory' not allow"),
        ("spark.pullPolicy=Maybe", "at '/spark/pullPolicy': value must be one of '', 'Always', "),
        ("logLevel=info", "at '/logLevel': value must be one of 'DEBUG', "),
        ("env[0].value=a", "at '/env/0': missing property 'name'"),
        ("tolerations[0].kye=a", "at '/tolerations/0': additional properties 'kye' not allowed"),
        ("resources.request.cpu=1", "at '/resources': additional properties 'request' not"),
        ("resources.limits.cpu=two", "at '/resources/limits/cpu': 'two' does not match pattern"),
        ("podLabels.a=1", "at '/podLabels/a': got number, want string"),
        ("podMonitor.interval=30", "at '/podMonitor/interval': got number, want string"),
        ("prometheusRule.lagSeconds=0", "at '/prometheusRule/lagSeconds': minimum: got 0, want 1"),
        (
            "prometheusRule.for.lag=5m",
            "at '/prometheusRule/for': additional properties 'lag' not allowed",
        ),
        (
            "prometheusRule.runbookUrl=wiki",
            "at '/prometheusRule/runbookUrl': 'wiki' does not match pattern",
        ),
        (
            "prometheusRule.enabled=true",
            "prometheusRule.enabled: needs podMonitor.enabled: true, as some alerts ask whether",
        ),
        ("dashboards.folder=Kafka", "at '/dashboards': additional properties 'folder' not allowed"),
        (
            "flowSchema.matchingPrecedence=9000",
            "at '/flowSchema/matchingPrecedence': maximum: got 9,000, want 8,999",
        ),
        ("fullnameOverride=A", "at '/fullnameOverride': 'A' does not match pattern"),
        (
            "watchNamespaces[0]=shop",
            "watchNamespaces: is for scope: Namespace only; set that, or leave watchNamespaces "
            "empty",
        ),
        ("mirrorTests.enabled=yes", "at '/mirrorTests/enabled': got string, want boolean"),
        (
            "mirrorTests.enabled=false,chaos.enabled=true",
            "chaos.enabled: is for mirror tests; set mirrorTests.enabled: true, or chaos.enabled",
        ),
        (
            "mirrorTests.enabled=false,rehearsal.enabled=true",
            "rehearsal.enabled: is for mirror tests; set mirrorTests.enabled: true, or rehearsal",
        ),
        (
            "serviceAccount.create=false",
            "serviceAccount.name: is required with serviceAccount.create: false; name one that is",
        ),
    ],
)
def test_a_wrong_value_is_named(value: str, sentence: str) -> None:
    with pytest.raises(HelmError, match=re.escape(sentence)):
        render(f"--set={value}")


def test_a_kubernetes_that_is_too_old() -> None:
    with pytest.raises(HelmError, match=r"requires kubeVersion: >=1\.32\.0-0 .* v1\.31\.0"):
        render("--kube-version=1.31.0")
