"""Figures, pages, and tables for terminals and notebooks.

Results come in from other rooms, and words and pictures are made here. A module that draws loads
matplotlib, so other rooms import it only in the method that draws.

A figure is data first. A function such as `over_time.queue` computes a `sheet.Sheet`: panels of
curves and bands on labelled axes. Data can be drawn in another process, so that the figures of a
report are drawn on several cores while the tables are written (`drawing_pool`).

    Result ──▶ Sheet ──▶ drawing.draw ─────────▶ Plot (PNG, SVG, PDF)
                 └─────▶ moving.moving_figures ─▶ numbers for web/report.js

- `kinds.KINDS` declares every figure of a link at a point, and `sweeps.OVERVIEWS` every figure over
  all points: its data, its caption, and when it is shown.
- `plot.Plot` is matplotlib's figure with the style in use; `style` knows the look on a screen and
  in a paper, and `parts` has the parts that figures share.
- `pages.page` writes report.html, which works offline, and `result_files` publishes the files of a
  result whole or not at all.
- `tables.Table` is a table for pages, terminals and notebooks. `answers` writes the sentences with
  which a report begins, from the files of `templates`.
- `designs` and `loops` show designs, control loops and maps of stability.

>>> from forebay.report.tables import Table
>>> print(Table(["Law", "Goodput [Mbit/s]"], [["pi", "29.8"]]).markdown())
| Law | Goodput [Mbit/s] |
| --- | ---: |
| pi | 29.8 |
<BLANKLINE>

Start reading at `kinds` and `pages`.
"""
