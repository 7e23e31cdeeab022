"""The command line: composes the packages; nothing imports it."""
