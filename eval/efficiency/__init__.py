"""Measured cost: time and memory by phase against prompt length, beside the least that the device allows."""
