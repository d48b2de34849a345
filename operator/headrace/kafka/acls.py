"""ACLs of topics: list, add, remove."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from headrace.errors import Fatal, HeadraceError
from headrace.kafka.admin import Admin
from headrace.kafka.errors import code_of
from headrace.kafka.principal import principal_of
from headrace.kafka.wire import answer_to_acls

T = TypeVar("T")
AclFields = Mapping[str, str]
"""``topic``, ``pattern``, ``principal``, ``host``, ``operation``, ``permission``, in the names of
kafka-acls.sh."""

_EVERY: Any = None
"""In a filter: any name; the client's types do not know it."""


class AclAdmin(Admin):
    """Blocking calls as ``Admin``'s. They raise ``Fatal`` without the right on the cluster, which
    it names, and where brokers have no authorizer."""

    def topic_acls(self) -> list[dict[str, str]]:
        """All of them."""
        every = AclBindingFilter(
            ResourceType.TOPIC,
            _EVERY,
            ResourcePatternType.ANY,
            _EVERY,
            _EVERY,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        client, tried = self._requests.client, f"list the ACLs of {self.name}"
        with self._explained("Describe"):
            future = self._requests.call(
                tried, lambda: client.describe_acls(every, request_timeout=self._timeout_s)
            )
            found = [_fields(one) for one in self._requests.result(tried, future)]
            if not found and (code := self._on_wire(answer_to_acls).value):
                refused = KafkaException(KafkaError(code))
                raise self._requests.failed(refused, tried) from refused
        return found

    def add_acls(self, acls: Collection[AclFields]) -> None:
        """Raises why one could not be added."""
        if not acls:
            return
        bindings = [_made(AclBinding, one) for one in acls]
        client, tried = self._requests.client, f"add ACLs of topics of {self.name}"
        futures = self._requests.call(
            tried, lambda: client.create_acls(bindings, request_timeout=self._timeout_s)
        )
        self._all(futures, tried)

    def remove_acls(self, acls: Collection[AclFields]) -> None:
        """Of those that are there. Raises why one could not be removed."""
        if not acls:
            return
        filters = [_made(AclBindingFilter, one) for one in acls]
        client, tried = self._requests.client, f"remove ACLs of topics of {self.name}"
        futures = self._requests.call(
            tried, lambda: client.delete_acls(filters, request_timeout=self._timeout_s)
        )
        self._all(futures, tried)

    def _all(self, futures: Mapping[Any, Any], tried: str) -> None:
        """Wait for each answer; raise the first that is an error."""
        failed: list[HeadraceError] = []
        for future in futures.values():
            try:
                self._requests.result(tried, future)
            except HeadraceError as error:
                failed.append(error)
        if failed:
            with self._explained("Alter"):
                raise failed[0]

    @contextmanager
    def _explained(self, operation: str) -> Iterator[None]:
        """``operation``: what a request needs on the cluster."""
        try:
            yield
        except HeadraceError as error:
            match code_of(error):
                case KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                    raise Fatal(f"{error}: {self._needs(operation)}") from error
                case KafkaError.SECURITY_DISABLED:
                    raise Fatal(
                        f"{error}: its brokers have no authorizer, so there are no ACLs"
                    ) from error
            raise

    def _needs(self, operation: str) -> str:
        who = principal_of(self._access)
        return (
            f"{who} has no {operation} on it (kafka-acls.sh --add --allow-principal {who} "
            f"--operation {operation} --cluster)"
        )


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


_OPERATIONS = {_camel(one.name): one for one in AclOperation}


def _made(kind: Callable[..., T], acl: AclFields) -> T:
    """An ACL, or a filter that matches that one alone."""
    return kind(
        ResourceType.TOPIC,
        acl["topic"],
        ResourcePatternType[acl["pattern"].upper()],
        acl["principal"],
        acl["host"],
        _OPERATIONS[acl["operation"]],
        AclPermissionType[acl["permission"].upper()],
    )


def _fields(acl: AclBinding) -> dict[str, str]:
    return {
        "topic": acl.name,
        "pattern": _camel(ResourcePatternType(acl.resource_pattern_type).name),
        "principal": acl.principal,
        "host": acl.host,
        "operation": _camel(AclOperation(acl.operation).name),
        "permission": _camel(AclPermissionType(acl.permission_type).name),
    }
