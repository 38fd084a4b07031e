"""Views of a result: tables, figures, pages, and the files that hold them."""
