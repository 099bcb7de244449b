"""The local what-if page: what it may ask, what it is answered, and how that is shown."""
