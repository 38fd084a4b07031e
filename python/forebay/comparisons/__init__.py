"""Two saved results beside each other: what differs, and whether that may be chance."""
