"""Elastic jobs, whose hosts change."""
