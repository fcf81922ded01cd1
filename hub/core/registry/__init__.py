"""Enrolment, heartbeats, discovery, and the expiry of leases."""
