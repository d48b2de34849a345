"""The steps of a MirrorTest that break things, and how long it takes until they are whole again."""

from headrace.chaos.chaos import Chaos, LoadProgress

__all__ = ["Chaos", "LoadProgress"]
