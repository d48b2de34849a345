"""What an assignor of one's own need not write itself (KIP-924, TaskAssignmentUtils)."""

from headrace.assign.rack_aware import optimize_rack_aware_active, optimize_rack_aware_standby
from headrace.assign.standbys import place_standbys
from headrace.assign.validation import find_violation, identity, validate


class AssignmentUtils:
    """Functions under the name under which people look for them."""

    validate = staticmethod(validate)
    find_violation = staticmethod(find_violation)
    identity = staticmethod(identity)
    place_standbys = staticmethod(place_standbys)
    optimize_rack_aware_active = staticmethod(optimize_rack_aware_active)
    optimize_rack_aware_standby = staticmethod(optimize_rack_aware_standby)
