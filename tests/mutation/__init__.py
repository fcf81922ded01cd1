"""Random small bugs (mutants), to see whether the fast tests catch them. `scripts/mutate` runs it."""
