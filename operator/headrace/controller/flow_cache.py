"""The flows, parsed once for each change."""

from collections.abc import Iterator

from headrace.api import ReplicationFlow
from headrace.controller.targets import FlowName
from headrace.errors import InvalidSpec
from headrace.k8s import Object, is_older, parse
from headrace.logs import get_logger

log = get_logger(__name__)


class FlowCache:
    """By name. Of two flows that had one name, one after the other, the later one counts, in
    whatever order the watch and the answers to writes report them."""

    def __init__(self) -> None:
        self._objects: dict[FlowName, Object] = {}
        self._parsed: dict[FlowName, ReplicationFlow] = {}

    def __iter__(self) -> Iterator[FlowName]:
        return iter(list(self._objects))

    def put(self, object: Object) -> bool:
        """A flow is there, or changed; whether that is news."""
        before = self._objects.get(name := name_of(object))
        if before is not None and (before == object or is_older(object, before)):
            return False
        self.set(name, object)
        return True

    def set(self, name: FlowName, object: Object | None) -> None:
        """A flow as it is, ``None`` when it is gone."""
        self._objects.pop(name, None)
        self._parsed.pop(name, None)
        if object is None:
            return
        self._objects[name] = object
        try:
            self._parsed[name] = parse(ReplicationFlow, object)
        except InvalidSpec as error:
            log.warning("flow not understood", flow=name[1], namespace=name[0], why=str(error))

    def drop(self, object: Object) -> None:
        """A flow is gone."""
        before = self._objects.get(name := name_of(object))
        if before is not None and before["metadata"]["uid"] == object["metadata"]["uid"]:
            self.set(name, None)

    def object(self, name: FlowName) -> Object | None:
        """A flow as the API has it."""
        return self._objects.get(name)

    def objects(self) -> list[Object]:
        """All, as the API has them."""
        return list(self._objects.values())

    def understood(self, name: FlowName) -> ReplicationFlow | None:
        """A flow, unless it is not there or not understood."""
        return self._parsed.get(name)

    def get(self, name: FlowName) -> ReplicationFlow:
        """A flow that is there; raises ``InvalidSpec`` for one that is not understood."""
        return self._parsed.get(name) or parse(ReplicationFlow, self._objects[name])

    def all(self) -> list[ReplicationFlow]:
        """All that are understood."""
        return list(self._parsed.values())


def name_of(object: Object) -> FlowName:
    """Namespace and name of an object."""
    return object["metadata"]["namespace"], object["metadata"]["name"]
