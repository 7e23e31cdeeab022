"""What the steps of the demo and the study do, one module a kind, and the process they run in."""
