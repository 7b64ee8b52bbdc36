"""Shared by launcher and workers."""
