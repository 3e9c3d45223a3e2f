"""Engines: who computes the units of a run. Each module has ``work``, which yields records as units finish."""
