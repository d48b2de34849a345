"""Where the units of flows run: what a flow and its drivers say, put to the flow's assignor.

The herder of ``headrace run`` and the operator decide by it, as Kubernetes' scheduler does for
pods.
"""
