"""Gateways to files, processes, git, forges and models."""
