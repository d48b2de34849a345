"""Checkpoint connector and tasks: translation of group offsets, and their use on the target."""
