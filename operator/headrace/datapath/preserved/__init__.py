"""Copies with ``offsets.mode: Preserved``: each committed record keeps its offset on the target.

``planned`` returns the operations that write a copy. Data are appended outside transactions, in
batches with the producer id of a transactional id and the partition's next sequence. Brokers append
such a batch only directly after the previous one (compare-and-append). Offsets without a record are
filled with the markers of empty transactions. Brokers need no change for that (versions 3.3 to 4.4
were tested).
"""
