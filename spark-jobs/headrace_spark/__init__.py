"""The mirror test's Spark jobs.

``command`` is the entry point of the scripts for spark-submit, which are in ``jobs/`` or, in a
clone, beside this package. ``flags`` contains their flags. ``producer`` sends the load and writes
the manifest of acknowledged records. ``probe`` watches the load arrive. Their Spark tasks are in
``sender`` and ``probe_consumer``. ``verify_job`` reads both clusters (``records``), compares them
(``comparison``, ``blocks``, ``checks``) and judges (``verdict``). ``messages`` is the format of the
load. The jobs of a run exchange ``job_documents``, also over ``headrace.kafka.journal``.
"""
