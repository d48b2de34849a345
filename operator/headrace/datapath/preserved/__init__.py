"""``offsets.mode: Preserved``: each committed record keeps its offset on the target.

``planned`` says what is to be written, ``first_difference`` whether two logs agree. Data is
appended in batches outside of transactions, which carry the producer id of a transactional id and
the partition's next sequence: brokers append such a batch only where the last one ended
(compare-and-append). Offsets without a record are filled with the markers of empty transactions.
Neither needs a change to the brokers (3.3 to 4.4 were tried).
"""
