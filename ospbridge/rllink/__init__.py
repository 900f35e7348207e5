"""RLlink without I/O: both roles, both dialects, and the checks that keep a real server alive."""
