"""The mirror test's Spark jobs.

``command`` is what the scripts for spark-submit do (they lie in ``jobs/``; in a clone, beside this
package), ``job_flags`` how they are called. ``producer`` sends the load and writes the manifest of
what brokers acknowledged; ``probe`` watches it arrive; their Spark tasks are in ``sender`` and
``watch``. ``verifier`` reads both clusters back (``records``: the only Spark I/O) and compares them
(``checks``: pure DataFrame functions), ``verdict`` judges, and ``judging`` is all of this job.
``messages`` is the format of the load. The jobs of a run report to each other in the topic of
``headrace.kafka.journal``, and exchange ``job_documents``; their documents and keys are those of
``headrace.mirror_test``.
"""
