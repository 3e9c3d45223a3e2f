"""The search behind EvolKV: layer budgets that a task metric on training samples chose."""
