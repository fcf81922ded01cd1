"""What the engines share: caches of the log's end, the lease table, the registry feed."""
