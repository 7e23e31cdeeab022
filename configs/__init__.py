"""The YAML files and the one loader. Imports nothing of ours."""

__version__ = "0.1.0"
