"""Files that users write, as TOML: what stands there, and what is wrong with it and where. Without I/O."""
