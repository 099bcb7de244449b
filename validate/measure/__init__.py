"""Load on a live server, and what it says: closed-loop cells, or hours of its own traffic read without any load."""
