"""Queues inside other people's programs: environments of Gymnasium, networks and sessions."""
