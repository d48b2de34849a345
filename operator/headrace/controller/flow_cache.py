"""The flows, parsed once for each change."""

from collections.abc import Iterator
from contextlib import suppress

from headrace.api import ReplicationFlow
from headrace.controller.targets import FlowName
from headrace.errors import InvalidSpec
from headrace.k8s import InForce, Object, is_older, read_in_force, salvage
from headrace.logs import get_logger

log = get_logger(__name__)


class FlowCache:
    """Flows by name, each with the spec that is in force.

    If two flows had one name, one after the other, the later one counts, in whatever order the
    watch and the answers to writes report them.
    """

    def __init__(self) -> None:
        self._objects: dict[FlowName, Object] = {}
        self._in_force: dict[FlowName, InForce] = {}

    def __iter__(self) -> Iterator[FlowName]:
        return iter(list(self._objects))

    def put(self, object: Object) -> bool:
        """Store a flow that was added or changed; return whether that is news."""
        before = self._objects.get(name := name_of(object))
        if before is not None and (before == object or is_older(object, before)):
            return False
        self._objects[name] = object
        known = self._in_force.pop(name, None)
        try:
            self._in_force[name] = found = read_in_force(object, known)
            why = found.error
        except InvalidSpec as error:
            why = str(error)
            with suppress(InvalidSpec):
                self._in_force[name] = salvage(object)
        if why and (known is None or known.error != why):
            log.warning("flow not understood", flow=name[1], namespace=name[0], why=why)
        return True

    def drop(self, object: Object) -> None:
        """Remove a deleted flow."""
        before = self._objects.get(name := name_of(object))
        if before is not None and before["metadata"]["uid"] == object["metadata"]["uid"]:
            del self._objects[name]
            self._in_force.pop(name, None)

    def object(self, name: FlowName) -> Object | None:
        """Return a flow as the API has it."""
        return self._objects.get(name)

    def objects(self) -> list[Object]:
        """Return all flows as the API has them."""
        return list(self._objects.values())

    def understood(self, name: FlowName) -> ReplicationFlow | None:
        """Return a flow with the spec in force, or None if it is not there or not understood."""
        found = self._in_force.get(name)
        return found.flow if found is not None else None

    def get(self, name: FlowName) -> InForce:
        """Return what is in force of a flow that is there.

        Raises:
            InvalidSpec: Nothing of it is understood.
        """
        return self._in_force.get(name) or read_in_force(self._objects[name], None)

    def all(self) -> list[ReplicationFlow]:
        """Return all flows that are understood."""
        return [found.flow for found in self._in_force.values()]


def name_of(object: Object) -> FlowName:
    """Namespace and name of an object."""
    return object["metadata"]["namespace"], object["metadata"]["name"]
