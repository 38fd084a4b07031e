"""The real Linux kernel as an engine: guests whose time is virtual, their setup and their runs."""
