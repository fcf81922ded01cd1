"""What is scarce, and the share of it that each workspace gets. Implements ports.shares."""
