"""Running an experiment: a scenario is read, its runs are made, and a result holds them."""
