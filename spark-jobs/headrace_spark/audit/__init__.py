"""Audit of real topics: an exact comparison of the records that applications wrote.

``ranges`` fixes the offsets to compare. ``records`` reads them with Spark, sums up the blocks of
each side, and finds the latest record of each key in compacted topics. ``differences`` finds the
blocks that differ, and classifies their records. ``comparing`` runs these steps, and ``judging``
returns the verdict.

With ``startFrom.mode: LastAudit``, ``frontier`` stores how far an audit came, ``earlier_audits``
decides where the next audit continues, and ``rechecking`` reads ranges of earlier audits again.
"""
