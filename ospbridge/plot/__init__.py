"""Pictures of recordings and traces. Needs the extra ``plot``; matplotlib is imported where it is used."""
