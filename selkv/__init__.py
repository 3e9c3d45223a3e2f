"""SelKV: selective KV-cache merging after prefill, and the plumbing that every other method shares."""

__version__ = "0.1.0"
