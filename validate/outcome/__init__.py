"""What came of a prediction: a run held against it cell by cell, the error split, and the causes that can be proven."""
