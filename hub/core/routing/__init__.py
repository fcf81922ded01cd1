"""Which worker a call goes to, and why."""
