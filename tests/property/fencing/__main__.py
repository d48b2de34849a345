"""Larger bounds of the model: ``cd tests && python -m property.fencing RECORDS STARTS FAULTS``."""

import sys

from property.fencing.model import Model
from property.fencing.state import violation
from support.explicit_state import explore

model = Model(*map(int, sys.argv[1:]))
found = explore(model.initial(), model.successors, violation)
print(model, f"{found.transitions} transitions, depth {found.depth}", found, sep="\n")
sys.exit(bool(found.violation))
