"""Corpora, questions that can be proved, teacher trajectories, training sets."""
