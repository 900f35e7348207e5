"""What turns outputs into observation, reward and flags, and actions into inputs."""
