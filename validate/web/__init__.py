"""What the pages and figures that draftcast serves itself have in common."""
