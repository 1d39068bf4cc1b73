"""Building of shuffled records from text: segments, layouts and runners."""
