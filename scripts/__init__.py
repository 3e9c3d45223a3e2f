"""Command-line tools: each is a few lines over `eval`."""
