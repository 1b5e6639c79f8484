"""Following leaders: which partition is fetched from whom, the connections, and what each answer does to the log."""
