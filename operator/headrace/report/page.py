"""``report.html``: one self-contained file, to read on a screen, dark or light, and on paper."""

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from headrace.api import Delivery, format_ranges
from headrace.report import plots
from headrace.report.chaos import Fault
from headrace.report.result import Kind, Result

GLOSSES = {
    Kind.MISSING: "acknowledged by the source, and not on the target",
    Kind.DUPLICATED: "on the target once more; every copy after the first counts",
    Kind.REORDERED: "first arrived behind a later message of its topic, producer and key",
    Kind.CORRUPTED: "not as on the source: key, value, headers, timestamp or partition",
    Kind.ALIEN: "on the target under this run's name, and sent by nobody",
    Kind.UNACKNOWLEDGED: "on the source without an acknowledgement: may be mirrored or not",
    Kind.SOURCE_LOST: "acknowledged by the source and no longer on it",
}
