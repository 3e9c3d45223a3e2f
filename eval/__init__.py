"""LongBench evaluation: data, prompts, metrics, records, runner, statistics and reports."""
