"""Small modules that scripts and other packages import."""
