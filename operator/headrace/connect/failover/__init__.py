"""The verbs that change sides: fail-over, fail-back, import from and export to MirrorMaker 2."""
