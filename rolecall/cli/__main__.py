"""`python -m rolecall.cli`: the same as `rolecall`."""

from rolecall.cli import main

main()
