"""Who is there: enrolment, heartbeats, discovery, and the end of leases."""
