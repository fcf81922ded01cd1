"""Push configs, and the deliveries that they are owed."""
