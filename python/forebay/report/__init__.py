"""What people look at: figures, pages, tables on a terminal and in a notebook."""
