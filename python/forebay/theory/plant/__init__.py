"""The plant: a link, its flows' windows, and where they settle under a law."""
