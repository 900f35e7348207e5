"""The daemon's upstream side: experience up, weights down."""
