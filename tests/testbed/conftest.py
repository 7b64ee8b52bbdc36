"""The fixture of bed.fixtures, for the bed's own tests."""

from bed.fixtures import make_bed

__all__ = ["make_bed"]
