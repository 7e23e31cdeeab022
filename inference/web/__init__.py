"""The recorded web and the local servers that speak the real search and reader APIs."""
