"""Tests against the real kvpress and lm-eval: they run in an environment of their own (make test-peers)."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("kvpress") else ["test_*.py"]
