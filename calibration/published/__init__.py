"""Published measurements of speculative decoding: reading them, and the model fitted to each one's baseline."""
