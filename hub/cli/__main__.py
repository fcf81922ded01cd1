"""`python -m hub.cli`: the same as `rolecall`."""

from hub.cli import main

main()
