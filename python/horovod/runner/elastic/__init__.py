"""Elastic jobs: hosts that come and go."""
