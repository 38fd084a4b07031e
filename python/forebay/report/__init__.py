"""What a result is shown as: tables, figures, pages, and the files that hold them."""
