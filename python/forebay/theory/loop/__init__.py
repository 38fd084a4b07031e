"""The loop of plant and law: its response over frequency and time, its poles, its margins."""
