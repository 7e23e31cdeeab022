"""The four stages and the in-process engine: the one package that imports torch."""
