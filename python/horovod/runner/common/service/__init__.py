"""Services that processes of a job, or of two jobs, find each other with."""
