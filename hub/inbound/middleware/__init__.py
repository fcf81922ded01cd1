"""What every request passes before its dispatcher: authentication, rate limits, fair scheduling, audit log."""
