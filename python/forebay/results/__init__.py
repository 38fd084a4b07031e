"""The result of an experiment: `forebay.run` and what it returns."""
