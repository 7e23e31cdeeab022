"""One module a command, each with run(args) -> exit code; imported after the command line is parsed."""
