"""Maps of stability: where a law is stable."""
