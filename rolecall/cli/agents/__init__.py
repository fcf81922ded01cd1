"""`rolecall agents`: the live workers, and what they take."""
