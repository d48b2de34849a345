"""The time that tests wait for slow steps: load of the machine is no finding."""

WITHIN_S = 300.0
"""Longest wait of a test.

Runs of this project share two cores with other runs, and have taken three times as long as on an
idle machine.
"""
