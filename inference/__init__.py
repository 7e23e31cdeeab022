"""The agent at work: types, models, tools, views, loops, journal. Imports configs only."""
