"""`rolecall doctor`: find problems between here and an answer. It runs with the hub's packages and without."""
