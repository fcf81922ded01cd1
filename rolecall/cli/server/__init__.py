"""Commands that run or administer a hub on this machine. Only these import `hub`."""
