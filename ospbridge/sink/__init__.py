"""A small RLlink server for those who have no RLlib at hand: records episodes, and hands out a policy from a file."""
