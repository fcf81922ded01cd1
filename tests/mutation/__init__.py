"""Small bugs, planted at random, to see whether the fast tests notice them. `scripts/mutate` runs it."""
