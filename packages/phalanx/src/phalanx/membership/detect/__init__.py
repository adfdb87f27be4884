"""Which members seem to be gone: failure detectors, and the suspicions that follow from what they say."""
