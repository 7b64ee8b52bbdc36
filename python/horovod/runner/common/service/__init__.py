"""Services with which processes of a job, or of two jobs, find each other."""
