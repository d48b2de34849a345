"""NetworkPolicies as rules of a packet filter, for a network plug-in that enforces none.

A new connection passes the chain of the pod that it leaves, then the chain of the pod that it
enters. A pod without a policy of that direction has no chain. Connections that no policy allows are
rejected at once. Features that are not translated (names and ranges of ports, ``except``) raise
ValueError.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]

CHAIN = "POLICIES"
HOOKS = ("FORWARD", "INPUT")
"""Chains that jump to CHAIN, for packets sent by pods. The node's probes reach every pod."""
_MATCHES: dict[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
}


@dataclass(frozen=True)
class _Direction:
    type: str
    own: str
    """Option of iptables for the pod's own address."""
    rules: str
    peers: str
    peer: str


_DIRECTIONS = (
    _Direction("Egress", "-s", "egress", "to", "-d"),
    _Direction("Ingress", "-d", "ingress", "from", "-s"),
)


def rules(objects: Iterable[Object]) -> str:
    """Return the input of ``iptables-restore --noflush`` for all policies, pods and namespaces."""
    every: dict[str, list[Object]] = {"NetworkPolicy": [], "Pod": [], "Namespace": []}
    for one in objects:
        every[one["kind"]].append(one)
    pods = [pod for pod in every["Pod"] if _is_in_network(pod)]
    namespaces = {one["metadata"]["name"]: one["metadata"]["labels"] for one in every["Namespace"]}
    first = ["-m conntrack --ctstate ESTABLISHED,RELATED -j RETURN"]
    chains = {CHAIN: first}
    for direction in _DIRECTIONS:
        for pod in pods:
            if policies := [one for one in every["NetworkPolicy"] if _is_for(one, pod, direction)]:
                address = pod["status"]["podIP"]
                name = f"{direction.type}-{address}"
                first.append(f"{direction.own} {address} -j {name}")
                allowed = _allowed(policies, direction, pods, namespaces)
                chains[name] = [*allowed, "-j REJECT"]
    lines = [
        *(f":{chain} - [0:0]" for chain in chains),
        *(f"-A {chain} {rule}" for chain, rules in chains.items() for rule in rules),
    ]
    return "\n".join(["*filter", *lines, "COMMIT", ""])


def _is_in_network(pod: Object) -> bool:
    ended = pod["status"].get("phase") in {"Succeeded", "Failed"}
    return bool(pod["status"].get("podIP")) and not ended and not pod["spec"].get("hostNetwork")


def _is_for(policy: Object, pod: Object, direction: _Direction) -> bool:
    return (
        policy["metadata"]["namespace"] == pod["metadata"]["namespace"]
        and direction.type in policy["spec"]["policyTypes"]
        and _selects(policy["spec"]["podSelector"], pod["metadata"].get("labels", {}))
    )


def _allowed(
    policies: Iterable[Object],
    direction: _Direction,
    pods: Sequence[Object],
    namespaces: Mapping[str, Mapping[str, str]],
) -> Iterator[str]:
    for policy in policies:
        here = policy["metadata"]["namespace"]
        for rule in policy["spec"].get(direction.rules, ()):
            peers = rule.get(direction.peers) or ({"ipBlock": {"cidr": "0.0.0.0/0"}},)
            for peer in peers:
                for address in _addresses(peer, here, pods, namespaces):
                    for port in _ports(rule):
                        yield f"{direction.peer} {address} {port}-j RETURN"


def _addresses(
    peer: Object,
    here: str,
    pods: Sequence[Object],
    namespaces: Mapping[str, Mapping[str, str]],
) -> Iterator[str]:
    if "ipBlock" in peer:
        yield _without("except", peer["ipBlock"])["cidr"]
        return
    for pod in pods:
        namespace = pod["metadata"]["namespace"]
        is_there = (
            _selects(peer["namespaceSelector"], namespaces[namespace])
            if "namespaceSelector" in peer
            else namespace == here
        )
        if is_there and _selects(peer.get("podSelector", {}), pod["metadata"].get("labels", {})):
            yield pod["status"]["podIP"]


def _ports(rule: Object) -> list[str]:
    return [
        f"-p {port['protocol'].lower()} --dport {int(_without('endPort', port)['port'])} "
        for port in rule.get("ports", ())
    ] or [""]


def _without(untranslated: str, part: Object) -> Object:
    if untranslated in part:
        raise ValueError(f"{untranslated} is not translated: {part}")
    return part


def _selects(selector: Object, labels: Mapping[str, str]) -> bool:
    """Return True if a LabelSelector matches the labels. An empty selector matches all."""
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        _MATCHES[one["operator"]](labels.get(one["key"]), one.get("values", ()))
        for one in selector.get("matchExpressions", ())
    )
