"""Making runs: an experiment that was read, its execution, and the table of its runs."""
