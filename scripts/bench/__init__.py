"""Speed and memory measurements behind make bench."""
