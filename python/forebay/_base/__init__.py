"""What every other folder stands on: quantities, metrics, statistics, files, progress, signals."""
