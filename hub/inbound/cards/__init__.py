"""Agent cards and the catalog: what the hub and its roles offer, made of the offers of live workers."""
