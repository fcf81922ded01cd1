"""Push configs, and the deliveries that are due to them."""
