"""Code that both engines share: cached tasks and log tails, the lease table, the registry feed."""
