"""`python -m forebay`, for a machine whose `forebay` is not on the path."""

from forebay.cli.main import main

main()
