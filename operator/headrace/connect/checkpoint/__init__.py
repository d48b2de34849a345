"""The checkpoint connector and its tasks: groups' offsets, translated and applied."""
