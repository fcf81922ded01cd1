"""Commands that run or administer a hub on this machine. They need the hub's packages."""
