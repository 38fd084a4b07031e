"""Scripts and styles of the studio and the reports; `vendor/` holds uPlot (decision 014)."""
