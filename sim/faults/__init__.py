"""What strikes a simulated cluster, by what it strikes; `plan.py` draws from all of it."""
