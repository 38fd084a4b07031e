"""Scripts and styles that the studio and the reports share; `vendor/` holds uPlot (decision 014)."""
