"""Looking after an installation: status, doctor, briefs, clients and hooks."""
