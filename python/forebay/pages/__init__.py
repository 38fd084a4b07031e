"""Pages and files of a result, for a browser, a terminal and a notebook."""
