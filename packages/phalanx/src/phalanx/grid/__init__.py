"""Maps and their records: the data itself, as opaque bytes."""
