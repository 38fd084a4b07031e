"""What helps a user on the way: a scenario to start from, the meaning of a key, what to cite."""
