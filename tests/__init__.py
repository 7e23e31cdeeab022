"""Flat: tests/test_<noun>.py."""
