"""Scores, paired comparisons and reports over finished rollouts."""
