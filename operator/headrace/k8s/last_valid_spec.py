"""The spec that a flow follows: its current spec, or the last valid one.

An invalid edit must not stop a running flow. The operator keeps the last valid spec in memory.
While the current spec is invalid, the last valid one is also in the flow's status (``lastValid``),
so that another operator and new drivers can read it.
"""

from dataclasses import dataclass

from headrace.api import LastValid, ReplicationFlow, dump
from headrace.errors import InvalidSpec
from headrace.k8s.kinds import InvalidObject, Object, parse


@dataclass(frozen=True)
class InForce:
    """A flow with the spec that it follows, which is in force."""

    flow: ReplicationFlow
    generation: int | None
    """Generation of the spec, or None if it is unknown."""
    error: str = ""
    """Reason why the object's current spec is not in force, or empty if it is."""
    is_complete: bool = True
    """False if invalid fields were removed from the user's spec."""

    @property
    def last_valid(self) -> LastValid | None:
        """Content of ``status.lastValid``, or None while the object's current spec is in force."""
        if not self.error or not self.is_complete:
            return None
        return LastValid(generation=self.generation, spec=dump(self.flow.spec))


def read_in_force(object: Object, known: InForce | None) -> InForce:
    """Return a flow with its current spec, or its last valid one if the current one is invalid.

    ``known`` is the previous result, or None.

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
        except InvalidSpec:  # another version of headrace stored the last valid spec
            raise error from None
    return InForce(flow, flow.metadata.generation)


def salvage(object: Object) -> InForce:
    """Return a flow without the invalid fields of its spec.

    Use the result only to assign units. Without its filter, for example, a flow would copy other
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


def shown_flow(object: Object) -> ReplicationFlow:
    """Return a flow with its current or its last valid spec, or without its invalid fields.

    Use the result only to show the flow.

    Raises:
        InvalidSpec: The remaining fields are not a valid flow.
    """
    try:
        return read_in_force(object, None).flow
    except InvalidSpec:
        return salvage(object).flow


def _with_spec(object: Object, spec: object, generation: int | None, error: InvalidSpec) -> InForce:
    flow = parse(ReplicationFlow, object | {"spec": spec})
    return InForce(flow, generation, str(error))
