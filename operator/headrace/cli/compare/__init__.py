"""`headrace test compare-mirrors`: MirrorMaker 2 and headrace through the same experiments."""
