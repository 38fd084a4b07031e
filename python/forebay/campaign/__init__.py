"""Many experiments: studies of a sweep, the scenarios of RFC 7928, and the papers replayed."""
