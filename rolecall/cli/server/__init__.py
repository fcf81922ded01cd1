"""Commands that run or administer a hub on this machine: the only ones that import `hub`."""
