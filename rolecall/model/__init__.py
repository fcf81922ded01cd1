"""Words of the domain. No input, no output, nothing from outside the standard library."""
