"""The audit of real topics: an exact comparison of the records that applications wrote.

``ranges`` fixes the offsets that are compared. ``records`` reads them with Spark, reduces each side
to the sums of blocks, and finds the latest record of each key of compacted topics. ``differences``
finds the blocks that differ, and classifies their records. ``comparing`` puts these together, and
``judging`` gives the verdict.
"""
