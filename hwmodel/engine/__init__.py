"""What an inference engine of a given version does with a deployment: pure functions of names and numbers."""
