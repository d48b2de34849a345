"""A check that docstrings, comments, pages, messages and commit subjects are plain English.

``make lint`` runs it. ``rules.py`` contains what it rejects and what to write instead.
"""
