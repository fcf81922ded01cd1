"""Programs in one supervised console, which `rolecall up` and `rolecall dev` run: start, restart, output, end."""
