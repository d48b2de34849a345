"""The spec that is in force: the object's own, or the last valid one while its own is invalid.

An invalid edit must stop nothing that runs. The operator keeps the last valid spec in memory, and
in the flow's status (``lastValid``) for as long as the flow's own spec is invalid: another operator
and new drivers read it there.
"""

from dataclasses import dataclass

from headrace.api import LastValid, ReplicationFlow, dump
from headrace.errors import InvalidSpec
from headrace.k8s.kinds import InvalidObject, Object, parse


@dataclass(frozen=True)
class InForce:
    """A flow: the object's metadata and status, and the spec that is in force."""

    flow: ReplicationFlow
    generation: int | None
    """Generation that the spec was written with; None if that is not known."""
    error: str = ""
    """Why the object's own spec is not in force, or empty if it is."""
    is_complete: bool = True
    """Whether this is a spec that a user wrote. False: invalid fields were left out of it."""

    @property
    def last_valid(self) -> LastValid | None:
        """The content of ``status.lastValid``; None while the object's own spec is in force."""
        if not self.error or not self.is_complete:
            return None
        return LastValid(generation=self.generation, spec=dump(self.flow.spec))


def read_in_force(object: Object, known: InForce | None) -> InForce:
    """Return what is in force of a flow; ``known`` is what was in force before, if anything.

    Raises:
        InvalidSpec: The object is invalid, and no valid spec of this flow is known.
    """
    try:
        flow = parse(ReplicationFlow, object)
    except InvalidObject as error:
        same = known is not None and known.flow.metadata.uid == object["metadata"].get("uid")
        if known is not None and same and known.is_complete:
            spec, generation = dump(known.flow.spec), known.generation
        elif (stored := (object.get("status") or {}).get("lastValid")) is not None:
            spec, generation = stored.get("spec"), stored.get("generation")
        else:
            raise
        try:
            return _with_spec(object, spec, generation, error)
        except InvalidSpec:  # another version stored it
            raise error from None
    return InForce(flow, flow.metadata.generation)


def salvage(object: Object) -> InForce:
    """Return a flow without the fields of its spec that are invalid.

    Use the result only to assign units: without its filter, for example, a flow copies other
    records.

    Raises:
        InvalidSpec: The remaining fields are not a valid flow.
    """
    try:
        parse(ReplicationFlow, object)
    except InvalidObject as error:
        valid = {name: value for name, value in object["spec"].items() if name not in error.fields}
        made = _with_spec(object, valid, None, error)
        return InForce(made.flow, None, made.error, is_complete=False)
    raise AssertionError("the flow is valid")


def _with_spec(object: Object, spec: object, generation: int | None, error: InvalidSpec) -> InForce:
    flow = parse(ReplicationFlow, object | {"spec": spec})
    return InForce(flow, generation, str(error))
