"""Sources: where units and sessions come from. A module each; none of them knows the index."""
