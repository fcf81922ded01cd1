"""`make bench`: nginx, a forwarding agent and the hub in front of one worker, in one run, with checked counts."""
