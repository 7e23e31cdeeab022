"""The YAML files and the one loader. Imports nothing of ours."""
