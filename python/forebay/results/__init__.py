"""The result of an experiment, with its figures, tables and report."""
