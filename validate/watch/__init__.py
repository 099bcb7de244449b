"""A live server watched through /metrics: whether the deployed draft length is still the best for its traffic."""
