"""Changes to the cluster, carried out: what administrators ask for and what the controller sees fit."""
