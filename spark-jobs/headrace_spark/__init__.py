"""Spark jobs of mirror tests.

``command`` is the entry point of the scripts for spark-submit. The scripts are in ``jobs/`` or, in
a clone, beside this package. ``flags`` defines their flags. ``producer`` sends the load and writes
the manifest of acknowledged records. ``probe`` measures the arrival of the load. ``sender`` and
``probe_consumer`` contain the code of their Spark tasks. ``verify_job`` reads both clusters
(``records``), compares them (``comparison``, ``blocks``, ``checks``) and judges (``verdict``).
``messages`` defines the format of the load. The jobs of a run exchange ``job_documents``, in files
or through ``headrace.kafka.journal``.
"""
