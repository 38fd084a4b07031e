"""Designs: gains of a law for a link, and for a range of links."""
