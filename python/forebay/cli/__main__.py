"""`python -m forebay.cli`."""

from forebay.cli.main import main

main()
