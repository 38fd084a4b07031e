"""The scenario file: names of experiments, samples of a sweep; scenarios and laws in Python."""
