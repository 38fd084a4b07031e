"""Figures, by kinds."""
