"""The mirror test's Spark jobs.

``producer`` sends the load and writes the manifest of what brokers acknowledged; ``probe``
watches it arrive; ``verifier`` reads both clusters back (``records``: the only Spark I/O) and
compares them (``checks``: pure DataFrame functions), and ``verdict`` judges. ``messages`` is the
format of the load, ``command`` what the scripts for spark-submit do (they lie in ``jobs/``; in a
clone, beside this package). The jobs of a run report to each other in the topic of
``headrace.kafka.journal``; their documents and keys are those of ``headrace.mirror_test``.
"""
