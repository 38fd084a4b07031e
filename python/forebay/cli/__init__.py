"""The command line: a file for each command, `app` with all of them, `main` where it begins."""
